"""A language that a completion has to be a sentence of, as plain data. Knows no tokens and no library."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

GrammarKind = Literal["json_schema", "regex", "choice", "lark"]


@dataclass(frozen=True, slots=True)
class Grammar:
    """kind says how text is read.

    json_schema: a JSON Schema, an object, as JSON. regex: a regular expression for all of the completion.
    choice: a JSON array of the texts that are allowed. lark: a context-free grammar in llguidance's Lark-like
    notation, or in GBNF.
    param: what its author calls it; errors name that, and nothing else depends on it.
    frame: what a sentence stands in, as Lark rules from `start` on that call it @sentence; empty for nothing.
    """

    kind: GrammarKind
    text: str
    param: str = field(default="grammar", compare=False)
    frame: str = ""

    @property
    def chars(self) -> int:
        """Characters of all its text."""
        return len(self.text) + len(self.frame)
