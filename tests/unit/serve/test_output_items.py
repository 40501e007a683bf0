"""Items and events of an answer, held to the openai client's types and to its own state machine."""

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import Omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from engine.records import TokenLogprob
from serve.answers.output_items import OutputItems
from serve.answers.responses import Frame, ResponseFormat, item_id, response_id
from serve.answers.schema_responses import ResponseEvent, ResponseObject
from serve.choice import Piece
from serve.error_table import answer_for
from serve.errors import GenerationError
from serve.ids import bare_id
from serve.parsing.hermes import HermesParser
from serve.parsing.parts import CallArguments, CallStart, Content, Part, Reasoning
from serve.parsing.plain import PlainParser

REQUEST = "01890000-0000-7000-8000-000000000000"
USAGE = {
    "prompt_tokens": 3,
    "completion_tokens": 4,
    "total_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 2},
}
ECHOED: dict[str, Any] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "model": "m",
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "system_fingerprint": "b-base",
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
DESCRIBED = TypeAdapter(ResponseEvent)

texts = st.text(max_size=4)
calls = st.tuples(st.sampled_from(["weather", "sum"]), st.lists(texts, max_size=3))
runs = st.lists(st.one_of(st.builds(Content, texts), st.builds(Reasoning, texts), calls), max_size=8)


class Bytes:
    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])


class Given:
    """A parser that gives a list of parts, one a push."""

    markers = ()

    def __init__(self, parts: list[Part]) -> None:
        self._parts = iter(parts)

    def push(self, text: str) -> list[Part]:
        return [part for part in [next(self._parts, None)] if part is not None]

    def finish(self) -> list[Part]:
        return list(self._parts)


def parts_of(drawn: list[Any]) -> list[Part]:
    """The parts of drawn runs; calls are numbered, and have ids of their own."""
    made: list[Part] = []
    number = 0
    for run in drawn:
        if isinstance(run, tuple):
            made.append(CallStart(number, f"call_{number}", run[0]))
            made.extend(CallArguments(number, text) for text in run[1])
            number += 1
        else:
            made.append(run)
    return made


def expected(parts: list[Part]) -> list[tuple[str, str]]:
    """(type, text) of the items that parts make: neighbours of one kind are one item, each call one."""

    def kind(part: Part) -> tuple[str, int]:
        match part:
            case Content():
                return "message", 0
            case Reasoning():
                return "reasoning", 0
            case CallStart(index) | CallArguments(index):
                return "function_call", index

    found = [
        (kind_of, "".join(getattr(part, "text", "") for part in run))
        for (kind_of, _), run in groupby(parts, kind)
    ]
    return found or [("message", "")]


def shown(item: dict[str, Any]) -> tuple[str, str]:
    text = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
    return item["type"], text


def form(parser: Any = None, wanted_logprobs: int | None = None) -> ResponseFormat:
    return ResponseFormat(Frame(REQUEST, 7, 2, ECHOED), parser or PlainParser(), Bytes(), wanted_logprobs)


def played(shape: ResponseFormat, pieces: list[Piece]) -> list[dict[str, Any]]:
    """All events of a stream."""

    def events() -> Iterator[dict[str, Any]]:
        yield from shape.opening()
        for piece in pieces:
            yield from shape.events(piece)
        yield shape.last(shape.whole(USAGE))

    return [json.loads(json.dumps(event)) for event in events()]


@given(drawn=runs, finish=st.sampled_from(["stop", "length"]))
def test_the_clients_state_machine_makes_the_same_answer_of_any_parts(drawn: list[Any], finish: str) -> None:
    parts = parts_of(drawn)
    pieces = [*(Piece(0, "x") for _ in parts), Piece(0, "", (), finish)]
    events = played(form(Given(parts)), pieces)
    state = ResponseStreamState(input_tools=Omit(), text_format=Omit())
    for event in events:
        DESCRIBED.validate_python(event)
        state.handle_event(EVENT.validate_python(event))
    answer = events[-1]["response"]
    assert [shown(item) for item in answer["output"]] == expected(parts)
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == answer["output"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert len({item["id"] for item in answer["output"]}) == len(answer["output"])
    for place, item in enumerate(answer["output"]):
        deltas = [
            event["delta"]
            for event in events
            if event["type"].endswith(".delta") and event["output_index"] == place
        ]
        assert "".join(deltas) == shown(item)[1]
    snapshot = state._ResponseStreamState__current_snapshot  # type: ignore[attr-defined]
    assert [item.type for item in snapshot.output] == [item["type"] for item in answer["output"]]


@given(drawn=runs, cut=st.lists(st.integers(1, 3), max_size=8))
def test_however_the_text_is_read_the_items_are_the_same(drawn: list[Any], cut: list[int]) -> None:
    text = "".join(
        f"<tool_call>{json.dumps({'name': run[0], 'arguments': {'q': ''.join(run[1])}})}</tool_call>"
        if isinstance(run, tuple)
        else run.text
        for run in drawn
    )
    at = [0]
    for step in cut:
        at.append(min(at[-1] + step * 5, len(text)))
    pieces = [Piece(0, text[low:high]) for low, high in zip(at, [*at[1:], len(text)], strict=True)]
    whole, streamed = form(HermesParser(ids())), form(HermesParser(ids()))
    for _ in whole.events(Piece(0, text, (), "stop")):
        pass
    events = played(streamed, [*pieces, Piece(0, "", (), "stop")])
    assert events[-1]["response"]["output"] == whole.whole(USAGE)["output"]


def ids() -> Any:
    numbers = iter(range(1000))
    return lambda: f"call_{next(numbers)}"


def test_the_answer_has_the_clients_type_and_the_documents() -> None:
    shape = form()
    list(shape.events(Piece(0, "hi", (), "stop", None, (1, 2))))
    answer = shape.whole(USAGE)
    TypeAdapter(ResponseObject).validate_python(answer)
    made = Response.model_validate(answer)
    assert made.output_text == "hi"
    assert made.usage is not None
    assert made.usage.input_tokens_details.cached_tokens == 2
    assert made.usage.output_tokens_details.reasoning_tokens == 0
    assert (made.status, made.incomplete_details) == ("completed", None)


def test_tokens_of_a_thought_are_counted_apart() -> None:
    shape = form(Given([Reasoning("a"), Reasoning("b"), Content("c")]))
    for piece in (
        Piece(0, "x", token_ids=(1, 2)),
        Piece(0, "y", token_ids=(3,)),
        Piece(0, "z", token_ids=(4,)),
    ):
        list(shape.events(piece))
    list(shape.events(Piece(0, "", (), "stop", token_ids=(5,))))
    assert shape.whole(USAGE)["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}


def test_arguments_that_were_cut_are_never_done() -> None:
    shape = form(Given([CallStart(0, "call_1", "f"), CallArguments(0, '{"a": ')]))
    events = [event for _ in range(2) for event in shape.events(Piece(0, "x"))]
    events += shape.events(Piece(0, "", (), "length"))
    assert "response.function_call_arguments.done" not in [event["type"] for event in events]
    answer = shape.whole(USAGE)
    assert (answer["status"], answer["output"][0]["status"]) == ("incomplete", "incomplete")
    assert answer["output"][0]["arguments"] == '{"a": '
    assert answer["completed_at"] is None


def test_logprobs_follow_the_text_they_belong_to() -> None:
    held = [TokenLogprob(97, -1.0, ((97, -1.0),)), TokenLogprob(98, -2.0, ())]
    shape = form(wanted_logprobs=1)
    events = [*shape.events(Piece(0, "", (held[0],))), *shape.events(Piece(0, "ab", (held[1],)))]
    events += shape.events(Piece(0, "", (TokenLogprob(99, -3.0, ()),), "stop"))
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [[item["token"] for item in delta["logprobs"]] for delta in deltas] == [["a", "b"], ["c"]]
    part = shape.whole(USAGE)["output"][0]["content"][0]
    assert [item["token"] for item in part["logprobs"]] == ["a", "b", "c"]
    assert part["logprobs"][0]["top_logprobs"][0]["token"] == "a"


def test_a_failure_keeps_what_had_come() -> None:
    shape = form()
    events = [*shape.opening(), *shape.events(Piece(0, "so far"))]
    events += shape.failed(answer_for(GenerationError("it broke")))
    for event in events:
        EVENT.validate_python(event)
    error, failed = events[-2:]
    assert (error["type"], error["code"], error["message"]) == ("error", "generation_failed", "it broke")
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["output"][0]["content"][0]["text"] == "so far"
    assert failed["response"]["output"][0]["status"] == "incomplete"


def test_arguments_without_a_call_are_a_fault() -> None:
    items = OutputItems(lambda prefix: prefix)
    with pytest.raises(AssertionError, match="after the start"):
        list(items.take(CallArguments(0, "x"), []))


def test_ids_tell_their_request() -> None:
    assert bare_id(response_id(REQUEST)) == REQUEST
    assert item_id("msg", REQUEST, 17) == "msg_018900000000700080000000000000000011"
