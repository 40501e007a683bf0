from __future__ import annotations

from serve.parsing.hermes import HermesParser
from serve.parsing.parts import Call, Content, NewId, Reasoning
from serve.parsing.plain import PlainParser
from serve.parsing.think import ThinkParser
from tests.unit.serve.parsing.reading import parts_of, reply_of


def plain(new_id: NewId) -> ThinkParser:
    return ThinkParser(PlainParser(), opened=False)


def opened(new_id: NewId) -> ThinkParser:
    return ThinkParser(PlainParser(), opened=True)


def calling(new_id: NewId) -> ThinkParser:
    return ThinkParser(HermesParser(new_id), opened=False)


def test_the_thought_comes_out_apart() -> None:
    text = "<think>\nTwo and two.\n</think>\n\nFour.\n"
    assert parts_of(plain, *text) == [Reasoning("Two and two."), Content("Four.\n")]


def test_the_prompt_may_have_opened_it() -> None:
    assert parts_of(opened, *"hm\n</think>\n\nFour.") == [Reasoning("hm"), Content("Four.")]
    assert parts_of(opened, *"never ended ") == [Reasoning("never ended ")]


def test_an_answer_without_a_thought_is_content() -> None:
    for text in (" Four. <think>no</think>", "</think>", "  ", "<thin"):
        assert parts_of(plain, *text) == [Content(text)]


def test_an_empty_thought_is_none() -> None:
    assert parts_of(plain, *"<think>\n\n</think>\n\nFour.") == [Content("Four.")]


def test_calls_after_a_thought_are_found_and_those_within_are_thoughts() -> None:
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    reply = reply_of(calling, *f"<think>a {call} b</think>\n{call}")
    assert (reply.reasoning, reply.content) == (f"a {call} b", "")
    assert reply.calls == [Call("call-0", "f", "{}")]


def test_its_marks_and_the_inner_ones_stay_visible() -> None:
    assert calling(str).markers == ("<think>", "</think>", "<tool_call>", "</tool_call>")
