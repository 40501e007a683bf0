from __future__ import annotations

import pytest

from serve.parsing.llama3 import Llama3Parser
from serve.parsing.parts import CallArguments, CallStart, Content, Part
from tests.unit.serve.parsing.reading import parts_of

CALL = '{"name": "f", "parameters": {"a": 1}}'
FIRST: list[Part] = [CallStart(0, "call-0", "f"), CallArguments(0, '{"a": 1}')]
SECOND: list[Part] = [CallStart(1, "call-1", "f"), CallArguments(1, '{"a": 1}')]


@pytest.mark.parametrize("text", [CALL, f"<|python_tag|>{CALL}", f" \n{CALL} ", f"<|python_tag|> {CALL}\n"])
def test_a_call_is_all_of_an_answer_or_follows_the_tag(text: str) -> None:
    assert parts_of(Llama3Parser, *text) == FIRST


@pytest.mark.parametrize("between", ["; ", ";", " ;\n", "\n", "<|python_tag|>"])
def test_several_calls(between: str) -> None:
    assert parts_of(Llama3Parser, *f"{CALL}{between}{CALL}") == [*FIRST, *SECOND]


def test_the_type_that_some_answers_name_is_no_argument() -> None:
    text = '{"type": "function", "name": "f", "parameters": {"a": 1}}'
    assert parts_of(Llama3Parser, *text) == FIRST


def test_a_call_within_text_needs_the_tag() -> None:
    assert parts_of(Llama3Parser, *f"I see: {CALL}") == [Content(f"I see: {CALL}")]
    assert parts_of(Llama3Parser, *f"I see: <|python_tag|>{CALL}") == [Content("I see:"), *FIRST]


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "Paris", "name": "f", "parameters": {}}',
        '<|python_tag|>brave_search.call(query="x")',
        '{"name": "f", "parameters": [1]}',
        " {",
    ],
)
def test_other_json_and_code_is_content(text: str) -> None:
    assert parts_of(Llama3Parser, *text) == [Content(text)]


def test_other_json_is_not_held_back() -> None:
    assert Llama3Parser().push('{"city": "Par') == [Content('{"city": '), Content('"Par')]


def test_what_comes_after_a_call_and_is_none_is_content() -> None:
    assert parts_of(Llama3Parser, *f"{CALL}; bye") == [*FIRST, Content("; bye")]
    assert parts_of(Llama3Parser, *f"{CALL} bye") == [*FIRST, Content("bye")]
