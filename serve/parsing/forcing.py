"""Grammars under which an answer is one or more calls, each written as the model's own form has it.

A thought may come before them where the model thinks. Arguments keep to the function's schema, in the spacing
that json.dumps gives and chat templates show.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from engine.grammar import Grammar
from engine.json_schema import read_schema
from serve.parsing import hermes, mistral, think
from serve.parsing.choose import Form

MAX_CALLS = 16
"""In one answer: a small model may never come to an end of them by itself."""

_SPACING = {
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
    "json_allowed_escapes": '"\\bfnrt',
}

SpecialId = Callable[[str], int | None]
"""Id of a special token, None for a text that is none."""


def grammar_of(
    form: Form,
    functions: Mapping[str, Mapping[str, Any]],
    *,
    several: bool,
    thinks: bool,
    opened: bool,
    special: SpecialId,
) -> Grammar:
    """functions: name -> JSON Schema of the arguments; one of them is called, or `several` times one.

    thinks: a thought may come first; opened: it has to, as the prompt ends within it.
    Raises BadGrammar for a schema that cannot be enforced.
    """

    def mark(text: str) -> str:
        token = special(text)
        return json.dumps(text) if token is None else f"<[{token}]>"

    rules = _RULES[form](mark, " | ".join(f"f{n}" for n in range(len(functions))), several)
    for number, (name, schema) in enumerate(functions.items()):
        rules.append(f"f{number}: {_call(form, mark, name)} a{number}")
        rules.append(f"a{number}: %json {json.dumps(_arguments(schema))}")
    start = "calls"
    if thinks:
        rules += _thought(mark, opened)
        start = "thought calls" if opened else f"({mark(think.OPEN)} thought)? calls"
    return Grammar("lark", "\n".join([f"start: {start}", *rules]), param="tools")


Mark = Callable[[str], str]


def _hermes(mark: Mark, functions: str, several: bool) -> list[str]:
    call = rf'{mark(hermes.OPEN)} "\n" ({functions}) "}}\n" {mark(hermes.CLOSE)}'
    return [_repeated(r'"\n"', several), f"call: {call}"]


def _llama3(mark: Mark, functions: str, several: bool) -> list[str]:
    return [_repeated('"; "', several), f'call: ({functions}) "}}"']


def _mistral(mark: Mark, functions: str, several: bool) -> list[str]:
    listed = _repeated('", "', several).replace("calls:", "list:")
    return [f'calls: {mark(mistral.MARK)} "[" list "]"', listed, f'call: ({functions}) "}}"']


def _mistral_names(mark: Mark, functions: str, several: bool) -> list[str]:
    return [_repeated("", several), f"call: {mark(mistral.MARK)} ({functions})"]


_RULES: Mapping[Form, Callable[[Mark, str, bool], list[str]]] = {
    "hermes": _hermes,
    "llama3": _llama3,
    "mistral": _mistral,
    "mistral-names": _mistral_names,
}


def _repeated(between: str, several: bool) -> str:
    return f"calls: call ({between} call){{0,{MAX_CALLS - 1}}}" if several else "calls: call"


def _call(form: Form, mark: Mark, name: str) -> str:
    """What comes before the arguments of a call."""
    if form == "mistral-names":
        return f"{json.dumps(name)} {mark(mistral.ARGUMENTS)}"
    key = "parameters" if form == "llama3" else "arguments"
    return json.dumps(f'{{"name": {json.dumps(name)}, "{key}": ')


def _thought(mark: Mark, opened: bool) -> list[str]:
    """A thought to its end mark, and the space after it."""
    close = mark(think.CLOSE)
    if close.startswith("<"):
        return [rf"thought: /(.|\n)*/ {close} SPACE?", r"SPACE: /[ \n]{1,4}/"]
    return ["thought: text SPACE?", rf"text[suffix={close}]: /(.|\n)*/", r"SPACE: /[ \n]{1,4}/"]


def _arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema, of an object; one that lists its properties has no others unless it says so."""
    read_schema(Grammar("json_schema", json.dumps(schema), param="tools"))
    closed = {"additionalProperties": False} if _names_all(schema) else {}
    return {"type": "object", **schema, **closed, "x-guidance": _SPACING}


def _names_all(schema: Mapping[str, Any]) -> bool:
    others = {"additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref"}
    properties = schema.get("properties")
    if not isinstance(properties, dict) or others & schema.keys():
        return False
    return set(schema.get("required", ())) <= properties.keys()
