"""The rule of a fictional product: its reader wants one short, finished paragraph.

Thumbs up for such an answer and thumbs down for any other. An edit keeps the first one or two complete
sentences, which is what this reader would have written instead. The rule sees a text and how it ended,
nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from evals.tasks.brevity import MAX_WORDS, is_brief

Fault = Literal["unfinished", "several paragraphs", "too long", "empty"]

EDIT_WORDS = range(6, 46)
"""How many words an edit may have: shorter is no answer, longer is not what this reader wants."""

_SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')]))\s+(?=[A-Z\"'(])")
_LIST_ITEM = re.compile(r"^\s*(?:[-*#•]|\d+[.)])")


@dataclass(frozen=True, slots=True)
class Judgement:
    """`thumbs` is +1 or -1; `faults` says why it is -1."""

    thumbs: Literal[1, -1]
    faults: tuple[Fault, ...]


def judge(text: str, finish_reason: str) -> Judgement:
    """Apply the rule to one answer."""
    if is_brief(text, finish_reason):
        return Judgement(1, ())
    answer = text.strip()
    found: list[Fault] = []
    if finish_reason != "stop":
        found.append("unfinished")
    if "\n" in answer:
        found.append("several paragraphs")
    if len(answer.split()) > MAX_WORDS:
        found.append("too long")
    if not answer:
        found.append("empty")
    return Judgement(-1, tuple(found))


def edited(text: str) -> str | None:
    """The answer as the reader would have it: one or two complete sentences; None without any to keep."""
    paragraph = text.strip().split("\n", 1)[0].strip()
    if not paragraph or _LIST_ITEM.match(paragraph):
        return None
    sentences = [
        part for part in _SENTENCE_END.split(paragraph) if part.rstrip("\"')").endswith((".", "!", "?"))
    ]
    for count in (2, 1):
        kept = " ".join(sentences[:count])
        if len(sentences) >= count and len(kept.split()) in EDIT_WORDS:
            return kept
    return None
