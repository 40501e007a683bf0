"""What holds for the parsers of all forms: each call is found, whatever it holds and wherever it is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.parsing.hermes import HermesParser
from serve.parsing.llama3 import Llama3Parser
from serve.parsing.mistral import MistralParser
from serve.parsing.parts import Call, Content, Reply
from serve.parsing.think import ThinkParser
from tests.unit.serve.parsing.reading import MakeParser, cut, ids, joined, parts_of, reply_of, starts, texts


def hermes(calls: list[tuple[str, str]]) -> str:
    return "\n".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {args}}}\n</tool_call>' for name, args in calls
    )


def llama3(calls: list[tuple[str, str]]) -> str:
    return "; ".join(f'{{"name": "{name}", "parameters": {args}}}' for name, args in calls)


def mistral_list(calls: list[tuple[str, str]]) -> str:
    return (
        "[TOOL_CALLS]["
        + ", ".join(f'{{"name": "{name}", "arguments": {args}}}' for name, args in calls)
        + "]"
    )


def mistral_names(calls: list[tuple[str, str]]) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{args}" for name, args in calls)


FORMS = {
    "hermes": (HermesParser, hermes),
    "llama3": (Llama3Parser, llama3),
    "mistral, a list": (MistralParser, mistral_list),
    "mistral, names": (MistralParser, mistral_names),
}
PARSERS: dict[str, MakeParser] = {
    "hermes": HermesParser,
    "llama3": Llama3Parser,
    "mistral": MistralParser,
    "think": lambda new_id: ThinkParser(HermesParser(new_id), opened=False),
    "think, opened": lambda new_id: ThinkParser(Llama3Parser(new_id), opened=True),
}
WORDS = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "llama3": ("<|python_tag|>", ";"),
    "mistral": ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "f"),
    "think": ("<think>", "</think>", "<tool_call>", "</tool_call>"),
    "think, opened": ("<think>", "</think>", "<|python_tag|>"),
}
ODD: dict[str, Any] = {
    "quotes": 'say "no" \\ and \\"',
    "lines": "a\nb\r\n\tc",
    "braces": "}{[]}",
    "marks": "</tool_call> <tool_call> [TOOL_CALLS] [ARGS] <|python_tag|> </think>;",
    "letters": "é 🙂 \u2028 \x7f",
    "deep": {"a": [{"b": {"c": [[], {}, "}"]}}], "d": None},
    "": -1.5e3,
}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), values, max_size=3)
written = st.builds(
    lambda value, plain, indent: json.dumps(value, ensure_ascii=plain, indent=indent),
    objects,
    st.booleans(),
    st.sampled_from([None, 1]),
)
calls_of = st.lists(st.tuples(st.sampled_from(["f", "get_weather", "a-b"]), written), min_size=1, max_size=3)
places = st.lists(st.integers(0, 10_000), max_size=12)


@pytest.mark.parametrize("form", FORMS)
@given(calls_of, places)
def test_every_call_comes_out_as_it_was_written(
    form: str, calls: list[tuple[str, str]], places: list[int]
) -> None:
    make, write = FORMS[form]
    parts = parts_of(make, *cut(write(calls), places))
    reply = Reply()
    reply.add(parts)
    assert reply.calls == [Call(f"call-{n}", name, args) for n, (name, args) in enumerate(calls)]
    assert reply.content == ""
    assert [start.index for start in starts(parts)] == list(range(len(calls)))


@pytest.mark.parametrize("form", FORMS)
def test_arguments_may_hold_anything_and_be_cut_anywhere(form: str) -> None:
    make, write = FORMS[form]
    first, second = json.dumps(ODD, ensure_ascii=False), json.dumps(ODD, ensure_ascii=True, indent=2)
    text = write([("f", first), ("g", second)])
    whole = parts_of(make, text)
    assert reply_of(make, text).calls == [Call("call-0", "f", first), Call("call-1", "g", second)]
    assert parts_of(make, *text) == whole
    for place in range(len(text)):
        assert parts_of(make, text[:place], text[place:]) == whole


@pytest.mark.parametrize("form", FORMS)
def test_arguments_are_given_out_as_they_come(form: str) -> None:
    make, write = FORMS[form]
    text = write([("f", '{"text": "one two three four"}')])
    cut_at = text.index(" three")
    parser = make(ids())
    reply = Reply()
    reply.add(parser.push(text[:cut_at]))
    assert reply.calls == [Call("call-0", "f", '{"text": "one two')]


@pytest.mark.parametrize("form", FORMS)
def test_a_call_that_is_cut_keeps_what_was_written(form: str) -> None:
    make, write = FORMS[form]
    text = write([("f", '{"a": {"b": "x y"}}')])
    reply = reply_of(make, text[: text.index(" y")])
    assert (reply.content, reply.calls) == ("", [Call("call-0", "f", '{"a": {"b": "x')])


@pytest.mark.parametrize("name", PARSERS)
@given(st.data(), places)
def test_any_text_means_the_same_however_it_is_cut(name: str, data: st.DataObject, places: list[int]) -> None:
    text = data.draw(texts(*WORDS[name]))
    assert parts_of(PARSERS[name], *cut(text, places)) == parts_of(PARSERS[name], text)
    assert parts_of(PARSERS[name], *text) == parts_of(PARSERS[name], text)


@pytest.mark.parametrize("name", ["hermes", "llama3", "mistral"])
@given(st.text())
def test_text_without_a_call_is_content(name: str, text: str) -> None:
    assert parts_of(PARSERS[name], *text) == joined([Content(text)] if text else [])


@pytest.mark.parametrize("name", ["hermes", "llama3", "mistral"])
@given(st.data())
def test_where_nothing_is_a_call_nothing_is_lost(name: str, data: st.DataObject) -> None:
    text = data.draw(texts(*WORDS[name]))
    parts = parts_of(PARSERS[name], *text)
    if not list(starts(parts)):
        assert parts == joined([Content(text)] if text else [])
