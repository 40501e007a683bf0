from __future__ import annotations

import pytest

from serve.parsing.hermes import HermesParser
from serve.parsing.parts import Call, CallArguments, CallStart, Content, Part, Reply
from tests.unit.serve.parsing.reading import parts_of, reply_of

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
FOUND: list[Part] = [CallStart(0, "call-0", "f"), CallArguments(0, '{"a": 1}')]


def test_space_beside_a_call_belongs_to_it_and_text_stays() -> None:
    assert parts_of(HermesParser, f"Let me see.\n\n{CALL}\n") == [Content("Let me see."), *FOUND]
    assert parts_of(HermesParser, f"\n{CALL}\nDone. ") == [*FOUND, Content("Done. ")]
    assert parts_of(HermesParser, " no call \n") == [Content(" no call \n")]


def test_arguments_may_come_before_the_name() -> None:
    text = '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>'
    assert parts_of(HermesParser, text) == FOUND


def test_a_missing_end_mark_is_no_fault() -> None:
    assert parts_of(HermesParser, '<tool_call>{"name": "f", "arguments": {"a": 1}}') == FOUND


def test_an_escaped_name_is_read() -> None:
    reply = reply_of(HermesParser, '<tool_call>{"na\\u006de": "f\\u00e9", "arguments": {}}</tool_call>')
    assert reply.calls == [Call("call-0", "fé", "{}")]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call>not JSON</tool_call>",
        "<tool_call>[]</tool_call>",
        "<tool_call>{}</tool_call>",
        '<tool_call>{"name": "f"}</tool_call>',
        '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f\n", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": "{}"}</tool_call>',
        '<tool_call>{"name": "f", "arguments": null}</tool_call>',
        '<tool_call>{"name": "f" "arguments": {}}</tool_call>',
        '<tool_call>{"arguments": {"a": 1}}</tool_call>',
        '<tool_call>{"arguments": {"a": 1}, "arguments": {}, "name": "f"}</tool_call>',
        '<tool_call>{"arguments": {"a": 1',
        '<tool_call>{"other": 1, "name": "f", "arguments": {}}</tool_call>',
    ],
)
def test_what_is_no_call_is_content(text: str) -> None:
    assert parts_of(HermesParser, *text) == [Content(text)]


def test_a_call_after_one_that_is_none_is_found() -> None:
    assert parts_of(HermesParser, f"<tool_call>oh {CALL}") == [Content("<tool_call>oh"), *FOUND]


def test_what_follows_the_arguments_and_fits_no_call_is_content() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a": 1}, "b": 2}</tool_call>'
    assert parts_of(HermesParser, *text) == [*FOUND, Content(', "b": 2}</tool_call>')]


def test_nothing_of_a_mark_is_given_out_early() -> None:
    parser = HermesParser()
    reply = Reply()
    for piece in ("a", " \n", "<tool", "_call", ">", " {"):
        reply.add(parser.push(piece))
    assert reply.content == "a"
