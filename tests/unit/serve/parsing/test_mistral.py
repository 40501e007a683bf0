from __future__ import annotations

import re

import pytest

from serve.parsing.mistral import MistralParser, short_id
from serve.parsing.parts import CallArguments, CallStart, Content, Part
from tests.unit.serve.parsing.reading import parts_of

FIRST: list[Part] = [CallStart(0, "call-0", "f"), CallArguments(0, '{"a": 1}')]
SECOND: list[Part] = [CallStart(1, "call-1", "g"), CallArguments(1, "{}")]


@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]',
        '[TOOL_CALLS] [ {"name": "f", "arguments": {"a": 1}, "id": "abcd"},{"arguments": {}, "name": "g"} ]',
        '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}',
        '[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}\n[TOOL_CALLS]g[CALL_ID]i[ARGS]{}',
        '[TOOL_CALLS]f{"a": 1}[TOOL_CALLS] g {}',
    ],
)  # fmt: skip
def test_both_forms(text: str) -> None:
    assert parts_of(MistralParser, *text) == [*FIRST, *SECOND]
    assert parts_of(MistralParser, *f"Hm. {text} Ok") == [Content("Hm."), *FIRST, *SECOND, Content("Ok")]


@pytest.mark.parametrize(
    "text",
    [
        "[TOOL_CALLS]",
        "[TOOL_CALLS][]",
        "[TOOL_CALLS][1]",
        "[TOOL_CALLS]f[ARGS]5",
        "[TOOL_CALLS][ARGS]{}",
        '[TOOL_CALLS] say "f"',
        "[TOOL_CAL",
    ],
)
def test_what_is_no_call_is_content(text: str) -> None:
    assert parts_of(MistralParser, *text) == [Content(text)]


def test_a_list_that_breaks_off_keeps_its_calls() -> None:
    text = '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, oh'
    assert parts_of(MistralParser, *text) == [*FIRST, Content(", oh")]


def test_ids_are_such_as_the_templates_take() -> None:
    assert all(re.fullmatch("[A-Za-z0-9]{9}", short_id()) for _ in range(100))
