"""The bytes of a stream are those of its chunks, whichever of them were encoded ahead."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.records import TokenLogprob
from serve import sse
from serve.answers.assistant import Assistant
from serve.answers.chat import ChatFormat
from serve.answers.events import Events, Format
from serve.answers.shared import Head
from serve.answers.shown import Shown
from serve.answers.text import TextFormat
from serve.choice import Piece
from serve.order import Prompt
from serve.parsing.plain import PlainParser
from tests.unit.serve.letters import Letters

HEAD = Head("cmpl-1", 7, 'a "model" with\nodd letters', "b-a")


def shapes(wanted: int | None, usage: bool) -> list[Format]:
    shown = Shown(logprobs=wanted, usage=usage)
    prompt = Prompt((1,), ())
    chat = ChatFormat(HEAD, Letters(), Assistant(PlainParser), shown)
    return [chat, TextFormat(HEAD, Letters(), shown, [prompt], 3)]


def no_usage() -> dict[str, Any]:
    raise AssertionError("the usage so far was not asked for")


def chunked(shape: Format, piece: Piece) -> bytes:
    return b"".join(map(sse.event, shape.chunks(piece)))


@given(st.lists(st.tuples(st.integers(0, 2), st.text()), max_size=6), st.booleans())
def test_events_are_those_of_the_chunks(pieces: list[tuple[int, str]], usage: bool) -> None:
    for ours, theirs in zip(shapes(None, usage), shapes(None, usage), strict=True):
        events = Events(ours, no_usage)
        for index, text in pieces:
            assert events.of(Piece(index, text)) == chunked(theirs, Piece(index, text))


@pytest.mark.parametrize("wanted", [None, 0, 2])
def test_the_end_and_log_probabilities_are_told_in_full(wanted: int | None) -> None:
    logprobs = () if wanted is None else (TokenLogprob(1, -1.0, ((1, -1.0),)),)
    pieces = [
        Piece(0, "x", logprobs),
        Piece(0),
        Piece(0, "y", logprobs, "stop", "END"),
        Piece(1, "", (), "length"),
    ]
    for ours, theirs in zip(shapes(wanted, True), shapes(wanted, True), strict=True):
        events = Events(ours, no_usage)
        assert [events.of(piece) for piece in pieces] == [chunked(theirs, piece) for piece in pieces]
