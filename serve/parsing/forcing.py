"""Grammars under which an answer is one or more calls, each written as the model's own form has it.

Or it is a text in a form of its own, and calls may come in its place. A thought may come before where the
model thinks. Arguments keep to the function's schema, in the spacing that json.dumps gives and chat templates
show.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
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


Mark = Callable[[str], str]
"""How a rule writes a text that may be a special token."""


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
    mark = _marker(special)
    rules = _calls(form, mark, functions, several)
    return Grammar("lark", _answer("calls", rules, mark if thinks else None, opened), param="tools")


def framed(
    text: Grammar,
    form: Form | None,
    functions: Mapping[str, Mapping[str, Any]],
    *,
    several: bool,
    thinks: bool,
    opened: bool,
    special: SpecialId,
) -> Grammar:
    """The grammar of an answer's text with what else there may be: calls in its place, a thought before it.

    The rest is grammar_of()'s; without a form nothing is called.
    """
    mark = _marker(special)
    rules = _calls(form, mark, functions, several) if form is not None and functions else []
    if not rules and not thinks:
        return text
    answer = "(@sentence | calls)" if rules else "@sentence"
    return replace(text, frame=_answer(answer, rules, mark if thinks else None, opened))


def _marker(special: SpecialId) -> Mark:
    def mark(text: str) -> str:
        token = special(text)
        return json.dumps(text) if token is None else f"<[{token}]>"

    return mark


def _answer(answer: str, rules: list[str], thought_mark: Mark | None, opened: bool) -> str:
    """Lark rules of an answer, a thought before it where there may be one."""
    start = answer
    if thought_mark is not None:
        rules = [*rules, *_thought(thought_mark, opened)]
        start = f"thought {answer}" if opened else f"({thought_mark(think.OPEN)} thought)? {answer}"
    return "\n".join([f"start: {start}", *rules])


def _calls(form: Form, mark: Mark, functions: Mapping[str, Mapping[str, Any]], several: bool) -> list[str]:
    rules = _RULES[form](mark, " | ".join(f"f{n}" for n in range(len(functions))), several)
    for number, (name, schema) in enumerate(functions.items()):
        rules.append(f"f{number}: {_call(form, mark, name)} a{number}")
        rules.append(f"a{number}: %json {json.dumps(_arguments(schema))}")
    return rules


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
