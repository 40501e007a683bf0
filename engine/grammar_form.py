"""A grammar in the form that llguidance compiles. Knows no vocabulary.

JSON comes compact or spread over lines as people print it: between two of its marks one space, or one line
break and what the next line is indented by. More would only let a model that has lost its way write nothing
else. Characters in strings are written as they are, the control characters with an escape of one letter, so
that a name has one spelling.
"""

from __future__ import annotations

import json
from typing import Any

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import gbnf_to_lark, is_lark_syntax

from engine.errors import BadGrammar, GrammarTooComplex
from engine.grammar import Grammar
from engine.json_schema import read_schema

MAX_CHARS = 128 << 10
MAX_GBNF_CHARS = 8 << 10
"""Of GBNF, which is translated by a slower program."""
_JSON = {
    "item_separator": ",",
    "key_separator": ":",
    "whitespace_flexible": True,
    "whitespace_pattern": r"(?: |\n[ \t]{0,64})",
    "coerce_one_of": False,
    "lenient": False,
    "json_allowed_escapes": '"\\bfnrt',
}


def compiler_form(grammar: Grammar, *, after_space: bool) -> str:
    """Text for LLMatcher. after_space: a sentence begins with a space that its reader leaves out.

    Raises BadGrammar, GrammarTooComplex.
    """
    if grammar.chars > MAX_CHARS:
        raise GrammarTooComplex(grammar.param, f"{grammar.chars} characters", f"{MAX_CHARS} are")
    parts = [_part(grammar) | {"name": "sentence"}]
    if grammar.frame:
        parts.insert(0, {"lark_grammar": grammar.frame, "name": "framed"})
    if after_space:
        parts.insert(0, {"lark_grammar": f'start: " " @{parts[0]["name"]}'})
    return json.dumps({"grammars": parts})


def _part(grammar: Grammar) -> dict[str, Any]:
    match grammar.kind:
        case "json_schema":
            return {"json_schema": read_schema(grammar) | {"x-guidance": _JSON}}
        case "regex":
            return {"lark_grammar": _regex(grammar)}
        case "choice":
            return {"lark_grammar": f"start: CHOICE\nCHOICE: {' | '.join(map(json.dumps, _texts(grammar)))}"}
        case "lark":
            return {"lark_grammar": _lark(grammar)}


def _regex(grammar: Grammar) -> str:
    if not grammar.text:
        raise BadGrammar(grammar.param, "the regular expression is empty")
    form = json.loads(LLMatcher.grammar_from_regex(grammar.text))
    lark: str = form["grammars"][0]["lark_grammar"]
    return lark


def _texts(grammar: Grammar) -> list[str]:
    try:
        texts = json.loads(grammar.text)
    except (ValueError, RecursionError) as error:
        raise BadGrammar(grammar.param, f"it is not valid JSON: {error}") from error
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise BadGrammar(grammar.param, "choices are a list of one text or more, none of them empty")
    return list(dict.fromkeys(texts))


def _lark(grammar: Grammar) -> str:
    if is_lark_syntax(grammar.text):
        return grammar.text
    if len(grammar.text) > MAX_GBNF_CHARS:
        raise GrammarTooComplex(
            grammar.param, f"{len(grammar.text)} characters of GBNF", f"{MAX_GBNF_CHARS} are"
        )
    try:
        return gbnf_to_lark(grammar.text)
    except Exception as error:  # the translator says so in many ways, IndexError among them
        raise BadGrammar(
            grammar.param, f"it has no Lark rule 'start' and is no GBNF: {error or type(error).__name__}"
        ) from error
