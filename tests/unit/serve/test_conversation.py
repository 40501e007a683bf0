"""A turn as a chat: which message each item becomes, and what is refused by which name."""

from typing import Any

import pytest

from serve.conversation import in_own_names, messages_of, to_chat
from serve.errors import BadRequest, InvalidField
from serve.kept_responses import read_items
from serve.protocol.responses import parse_response

CALL = {"type": "function_call", "call_id": "c1", "name": "sum", "arguments": "{}"}
TOLD = {"id": "c1", "type": "function", "function": {"name": "sum", "arguments": "{}"}}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "3"}
THOUGHT = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def body(**fields: Any) -> Any:
    return parse_response({"model": "m", "input": "hi", **fields})


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        ([said("user", "a"), said("assistant", "b")], [said("user", "a"), said("assistant", "b")]),
        ([said("developer", "a")], [said("developer", "a")]),
        (
            [
                {
                    "role": "user",
                    "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
                }
            ],
            [said("user", "ab")],
        ),
        (
            [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
            [said("assistant", "no")],
        ),
        (
            [said("assistant", "a"), said("assistant", "b")],
            [said("assistant", "a"), said("assistant", "b")],
        ),
        (
            [THOUGHT, said("assistant", "x"), CALL, OUTPUT],
            [
                {"role": "assistant", "content": "x", "reasoning_content": "hm", "tool_calls": [TOLD]},
                {"role": "tool", "tool_call_id": "c1", "content": "3"},
            ],
        ),
        (
            [CALL, CALL, said("assistant", "after")],
            [{"role": "assistant", "content": "after", "tool_calls": [TOLD, TOLD]}],
        ),
        ([CALL], [{"role": "assistant", "content": None, "tool_calls": [TOLD]}]),
        ([THOUGHT], [{"role": "assistant", "content": "", "reasoning_content": "hm"}]),
        (
            [OUTPUT | {"output": [{"type": "input_text", "text": "4"}]}],
            [{"role": "tool", "tool_call_id": "c1", "content": "4"}],
        ),
    ],
)
def test_items_become_messages(items: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
    assert list(messages_of(None, read_items(items))) == messages
    assert list(messages_of("be", read_items(items))) == [said("system", "be"), *messages]


def test_instructions_come_before_all_items() -> None:
    items = read_items([said("user", "a"), said("assistant", "b")])
    chat = to_chat(body(instructions="be"), items)
    assert [message.content for message in chat.messages] == ["be", "a", "b"]


def test_calls_thoughts_and_outputs_are_taken_as_a_chat_takes_them() -> None:
    tool = {"type": "function", "name": "sum", "strict": None}
    asked = body(tools=[tool], tool_choice={"type": "function", "name": "sum"}, reasoning={"effort": "low"})
    chat = to_chat(asked, read_items([said("user", "a"), THOUGHT, CALL, OUTPUT]))
    _, called, told = (message.plain() for message in chat.messages)
    assert called["reasoning"] == "hm"
    assert called["tool_calls"] == [TOLD | {"function": {"name": "sum", "arguments": {}}}]
    assert told == {"role": "tool", "content": "3", "tool_call_id": "c1"}
    assert chat.calls.named
    assert chat.reasoning_effort == "low"


def test_parameters_have_their_names_of_a_chat() -> None:
    chat = to_chat(
        body(
            max_output_tokens=7, temperature=0.5, top_k=3, seed=4, stop="x", stream=True, user="ann",
            metadata={"a": "b"}, top_logprobs=2, logit_bias={"5": 1.5},
        ),
        read_items([said("user", "hi")]),
    )  # fmt: skip
    assert (chat.limit, chat.temperature, chat.top_k, chat.seed, chat.stop) == (7, 0.5, 3, 4, ["x"])
    assert (chat.stream, chat.user_key, chat.metadata, chat.wanted_logprobs) == (True, "ann", {"a": "b"}, 2)
    assert (chat.n, chat.logit_bias) == (1, {"5": 1.5})


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("messages[3].content", "input"),
        ("response_format.json_schema.schema", "text.format.schema"),
        ("response_format", "text.format"),
        ("reasoning_effort", "reasoning.effort"),
        ("verbosity", "text.verbosity"),
        ("tools[0].function.parameters", "tools[0].parameters"),
        ("tool_choice.function.name", "tool_choice.name"),
        ("temperature", "temperature"),
        (None, None),
    ],
)
def test_a_refusal_has_the_names_of_this_api(theirs: str | None, ours: str | None) -> None:
    error: BadRequest = in_own_names(InvalidField(f"{theirs} is 1; no", theirs))
    assert error.param == ours
    assert isinstance(error, InvalidField)
    if theirs != "messages[3].content":
        assert str(error) == f"{ours} is 1; no"
