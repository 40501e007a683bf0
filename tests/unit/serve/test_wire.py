import msgpack
import pytest

from engine.grammar import Grammar
from engine.records import Request, RequestStats, SamplingParams, TokenEvent, TokenLogprob
from serve.link import wire


def through(message: wire.Message) -> wire.Message:
    unpacker = wire.unpacker()
    unpacker.feed(wire.pack(message))
    (read,) = list(unpacker)
    return list(read)


def test_a_request_survives_the_wire() -> None:
    sampling = SamplingParams(7, temperature=0.3, seed=-(2**63), stop_token_ids=(1, 2), logprobs=3)
    request = Request("r", (1, 2, 3), sampling, "sha256:a", "t\x1fs", -4)
    assert wire.read_request(through(wire.request_message(request, True))) == (request, True)


def test_parameters_keep_their_shapes_on_the_wire() -> None:
    sampling = SamplingParams(
        7,
        n=3,
        logit_bias=((5, -1.5), (6, 100.0)),
        allowed_token_ids=(5, 6),
        bad_words=((1,), (2, 3)),
        grammar=Grammar("choice", '["a", "b"]'),
    )
    request = Request("r", (1,), sampling)
    assert wire.read_request(through(wire.request_message(request, False))) == (request, False)


@pytest.mark.parametrize(
    "event",
    [
        TokenEvent("r", (5,)),
        TokenEvent("r", (5, 6), (TokenLogprob(5, -0.5, ((5, -0.5), (7, -1.0))), TokenLogprob(6, -2.0))),
        TokenEvent("r", (2,), finish="stop", stop_token=2, stats=RequestStats(3, 0, 9, 1, 0.1, 0.2, 0.3)),
        TokenEvent("r", (), finish="error", error="no"),
        TokenEvent("r", (5, 6), finish="length", index=2, score=-0.25),
        TokenEvent("r", (5,), prompt_logprobs=(TokenLogprob(3, -0.5, ((3, -0.5),), rank=1),)),
    ],
)
def test_an_event_survives_the_wire(event: TokenEvent) -> None:
    assert wire.read_event(through(["events", [wire.write_event(event)]])[1][0]) == event


def test_messages_are_delimited_however_the_bytes_are_cut() -> None:
    messages: list[wire.Message] = [["ping"], ["abort", "é" * 100], ["events", []]]
    data = b"".join(map(wire.pack, messages))
    unpacker, read = wire.unpacker(), []
    for place in range(len(data)):
        unpacker.feed(data[place : place + 1])
        read.extend(unpacker)
    assert read == messages


def test_a_malformed_request_is_refused() -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        wire.read_request(["add", "r", [1], {"stop_token_ids": [], "surprise": 1}, None, "", 0, False])


def test_a_message_beyond_the_bound_is_refused() -> None:
    unpacker = wire.unpacker()
    with pytest.raises(msgpack.BufferFull):
        unpacker.feed(b"\xdb" + (1 << 31).to_bytes(4, "big") + b"x" * (wire.MAX_MESSAGE_BYTES + 1))
