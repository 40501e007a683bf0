"""Messages of answers: a stream's deltas, joined, are the whole message, and the end has its reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.answers.assistant import Assistant, Delta
from serve.choice import Piece
from serve.parsing.choose import Style
from serve.parsing.plain import PlainParser
from tests.unit.serve.parsing.reading import cut

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "x\\n}{é"}}\n</tool_call>'
TEXT = f"<think>\nhm\n</think>\n\nLet me see.\n{CALL}\n{CALL}"
PARSER = Style("hermes", False, True).parser(tools=True, parallel=True, opened=False)


def answer(text: str, places: list[int], end: Piece, **options: Any) -> tuple[Assistant, list[Delta]]:
    made = Assistant(PARSER, **options)
    pieces = [*(Piece(end.index, piece) for piece in cut(text, places)), end]
    return made, [delta for piece in pieces for delta in made.deltas(piece)]


def join(deltas: list[Delta]) -> dict[str, Any]:
    """As a client joins them: by index, ids and names once."""
    joined: dict[str, Any] = {}
    for delta in deltas:
        (field,) = delta
        if field != "tool_calls":
            joined[field] = joined.get(field, "") + delta[field]
            continue
        (call,) = delta["tool_calls"]
        calls = joined.setdefault("tool_calls", [])
        if call["index"] == len(calls):
            calls.append({"id": call["id"], "type": call["type"], "function": dict(call["function"])})
        else:
            assert call.keys() == {"index", "function"}
            assert call["function"].keys() == {"arguments"}
            calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    return joined


@given(st.lists(st.integers(0, 500), max_size=12))
def test_joined_deltas_are_the_message(places: list[int]) -> None:
    made, deltas = answer(TEXT, places, Piece(0, "", (), "stop"))
    message = made.message(0)
    function = {"name": "f", "arguments": '{"a": "x\\n}{é"}'}
    assert message == {"role": "assistant", "refusal": None, **join(deltas)}
    assert (message["content"], message["reasoning"]) == ("Let me see.", "hm")
    assert [call["function"] for call in message["tool_calls"]] == [function] * 2
    assert len({call["id"] for call in message["tool_calls"]}) == 2


def test_the_first_delta_of_a_call_has_its_name_and_arguments() -> None:
    made = Assistant(PARSER)
    (first,) = made.deltas(Piece(0, '<tool_call>{"name": "f", "arguments": {"a"'))
    (call,) = first["tool_calls"]
    assert (call["index"], call["type"]) == (0, "function")
    assert call["function"] == {"name": "f", "arguments": '{"a"'}
    (more,) = made.deltas(Piece(0, ": 1}"))
    assert more == {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}


def test_content_is_null_where_there_is_something_else() -> None:
    made, _ = answer(CALL, [], Piece(0, "", (), "stop"))
    assert made.message(0)["content"] is None
    made, _ = answer("<think>cut", [], Piece(0, "", (), "length"))
    assert made.message(0) == {"role": "assistant", "content": None, "refusal": None, "reasoning": "cut"}
    made, _ = answer("", [], Piece(0, "", (), "stop"))
    assert made.message(0) == {"role": "assistant", "content": "", "refusal": None}


@pytest.mark.parametrize(
    ("text", "end", "named", "reason"),
    [
        (CALL, Piece(0, "", (), "stop"), False, "tool_calls"),
        (CALL, Piece(0, "", (), "stop"), True, "stop"),
        (CALL, Piece(0, "", (), "stop", "END"), False, "stop"),
        (CALL, Piece(0, "", (), "length"), False, "length"),
        ("No call.", Piece(0, "", (), "stop"), False, "stop"),
    ],
)
def test_the_reason_of_the_end(text: str, end: Piece, named: bool, reason: str) -> None:
    made, _ = answer(text, [], end, named=named)
    assert made.finish_reason(end) == reason


def test_a_call_that_is_cut_is_not_completed() -> None:
    end = Piece(0, "", (), "length")
    made, deltas = answer('<tool_call>{"name": "f", "arguments": {"city": "Par', [20, 33], end)
    (call,) = made.message(0)["tool_calls"]
    assert call["function"]["arguments"] == '{"city": "Par'
    assert join(deltas)["tool_calls"] == [call]
    assert made.finish_reason(end) == "length"


def test_choices_are_read_apart() -> None:
    made = Assistant(PARSER)
    for text in ("a", "b"):
        for index in (0, 1):
            made.deltas(Piece(index, f"{text}{index}"))
    assert [made.message(index)["content"] for index in (0, 1)] == ["a0b0", "a1b1"]


def test_thoughts_may_be_left_out() -> None:
    made, deltas = answer(TEXT, [], Piece(0, "", (), "stop"), reasoning=False)
    assert "reasoning" not in made.message(0)
    assert "reasoning" not in join(deltas)


def test_plain_text_is_a_delta_of_content() -> None:
    made = Assistant(PlainParser)
    assert made.deltas(Piece(0, CALL)) == [{"content": CALL}]
    assert made.deltas(Piece(0)) == []
