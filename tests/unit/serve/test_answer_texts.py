"""Whatever the text, its stops and its borders: no torn character, no part of a stop, a stream as the whole.

Tokens are slices of the text's bytes, events runs of tokens, reads runs of events: all arbitrary.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

from hypothesis import example, given
from hypothesis import strategies as st

from engine.records import RequestStats, TokenEvent, TokenLogprob
from engine.token_text import TextStream
from serve.answers.assistant import Assistant
from serve.answers.chat import ChatFormat
from serve.answers.events import Events, Format
from serve.answers.shared import Head, collect
from serve.answers.shown import Shown
from serve.answers.text import TextFormat
from serve.choice import Choice, Piece, Reading
from serve.metrics import Meter
from serve.order import Prompt
from serve.parsing.plain import PlainParser
from serve.record.keeper import Entry

HEAD = Head("id", 7, "m", "b-a")
STATS = RequestStats(3, 0, 4, 0, 0.1, 0.2, 0.3)


class Sliced:
    """A tokenizer of one text: its tokens are the slices, in order."""

    def __init__(self, slices: Sequence[bytes]) -> None:
        self.slices = slices

    def token_bytes(self, token_id: int) -> bytes:
        return self.slices[token_id]

    text_bytes = token_bytes

    def stream(self) -> TextStream:
        return TextStream(strip_first_space=False)

    prompt_stream = stream


class Record:
    """Stands for an entry of the record."""

    completion = ""

    def end(self, reason: str, error: str | None, tally: Any, completion: str) -> bool:
        self.completion = completion
        return False


class Watch:
    """Stands for the metrics."""

    def tokens(self, tally: Any, count: int, now: float) -> None: ...


def cut(items: Sequence[Any], borders: Iterable[int]) -> list[Any]:
    """Slices of `items` at the borders, none of them empty."""
    inner = sorted({at for at in borders if 0 < at < len(items)})
    return [items[a:b] for a, b in zip([0, *inner], [*inner, len(items)], strict=True) if a < b]


def read(
    tokenizer: Sliced, options: dict[str, Any], runs: Iterable[int], reads: Iterable[int]
) -> list[Piece]:
    """The pieces of a choice that was cut at its length, and the record's text, which must be theirs."""
    ids = list(range(len(tokenizer.slices)))
    events = [
        TokenEvent("r", tuple(run), tuple(TokenLogprob(token, -1.0) for token in run))
        for run in cut(ids, runs)
    ]
    events.append(TokenEvent("r", (), (), finish="length", stats=STATS))
    record = Record()
    choice = Choice(
        0, Reading(tokenizer, frozenset(), **options), 3, cast(Entry, record), cast(Meter, Watch())
    )
    pieces = [piece for taken in cut(events, reads) if not choice.ended and (piece := choice.read(taken))]
    assert [piece.finish is not None for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert record.completion == "".join(piece.text for piece in pieces)
    return pieces


def first_stop(text: str, stops: Sequence[str]) -> tuple[int, str] | None:
    """Where the stop string begins that is whole first, the longest of several, found the slow way."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return end - max(map(len, found)), max(found, key=len)
    return None


def shapes(tokenizer: Sliced, shown: Shown) -> list[Format]:
    prompt = Prompt((), (), "so ")
    chat = ChatFormat(HEAD, tokenizer, Assistant(PlainParser), shown)
    return [chat, TextFormat(HEAD, tokenizer, shown, [prompt], 1)]


def chunks(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in data.decode().split("\n\n") if line]


def joined(made: list[dict[str, Any]]) -> dict[str, Any]:
    """A choice out of the chunks of its stream."""
    parts = [choice for chunk in made for choice in chunk["choices"]]
    logprobs: dict[str, list[Any]] = {}
    for part in parts:
        for name, column in (part["logprobs"] or {}).items():
            logprobs.setdefault(name, []).extend(column)
    return {
        "text": "".join(part.get("text", part.get("delta", {}).get("content", "")) for part in parts),
        "logprobs": logprobs,
        "finish": (parts[-1]["finish_reason"], parts[-1]["stop_reason"]),
    }


def flat(choice: dict[str, Any]) -> dict[str, Any]:
    text = choice["text"] if "text" in choice else choice["message"]["content"]
    finish = (choice["finish_reason"], choice["stop_reason"])
    return {"text": text, "logprobs": choice["logprobs"] or {}, "finish": finish}


texts = st.text(
    st.sampled_from('ab é\u0301\u200d👩🏽‍🚀ß日\r\n\u2028"\\{') | st.characters(codec="utf-8"),
    min_size=1,
    max_size=24,
)
borders = st.lists(st.integers(1, 90), max_size=12)


@st.composite
def stops_of(draw: st.DrawFn, text: str) -> list[str]:
    """Some of them stand in the text, some begin in it, some are nowhere."""
    found = []
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text) - 1))
        end = draw(st.integers(start + 1, len(text)))
        found.append(text[start:end] + draw(st.sampled_from(["", "", "Z", "é"])))
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[str], list[bytes]]:
    text = draw(texts)
    return text, draw(stops_of(text)), cut(text.encode(), draw(borders))


@example(("xDEFy", ["DE"], [b"x", b"DEF", b"y"]), False, True, ([1], [1]), ([2], [2]))
@example(("aENx", ["END"], [b"a", b"E", b"N", b"x"]), False, True, ([1, 2], [1]), ([2], [2]))
@example(("aEN", ["END"], [b"aE", b"N"]), False, False, ([1], [1]), ([1], []))
@example(("END", ["END"], [b"E", b"N", b"D"]), True, True, ([1, 2], [1, 2]), ([], []))
@given(cases(), st.booleans(), st.booleans(), st.tuples(borders, borders), st.tuples(borders, borders))
def test_a_stream_joins_to_the_whole_and_both_end_where_the_first_stop_begins(
    case: tuple[str, list[str], list[bytes]],
    include_stop: bool,
    with_logprobs: bool,
    streaming: tuple[list[int], list[int]],
    at_once: tuple[list[int], list[int]],
) -> None:
    text, stops, slices = case
    tokenizer = Sliced(slices)
    options = {"stops": tuple(stops), "include_stop": include_stop}
    shown = Shown(logprobs=0 if with_logprobs else None)
    found = first_stop(text, stops)
    wanted = text if found is None else text[: found[0]] + (found[1] if include_stop else "")
    end = ("length", None) if found is None else ("stop", found[1])
    whole_pieces = read(tokenizer, options, *at_once)
    for ours, theirs in zip(shapes(tokenizer, shown), shapes(tokenizer, shown), strict=True):
        events = Events(ours, dict)
        data = b"".join(map(events.of, read(tokenizer, options, *streaming)))
        streamed, whole = joined(chunks(data)), flat(theirs.whole(collect(whole_pieces, 1), {})["choices"][0])
        assert streamed == whole
        assert (whole["text"], whole["finish"]) == (wanted, end)
        if with_logprobs:
            reach = text if found is None else text[: found[0]] + found[1]
            check_logprobs(whole["logprobs"], slices, reach.encode())


def check_logprobs(logprobs: dict[str, Any], slices: list[bytes], reach: bytes) -> None:
    """Those of the tokens that were read: all with which the text, or the stop string in it, is whole."""
    count = next(count for count in range(len(slices) + 1) if b"".join(slices[:count]).startswith(reach))
    if "content" in logprobs:
        assert [bytes(item["bytes"]) for item in logprobs["content"]] == slices[:count]
    else:
        before = [b"".join(slices[:number]) for number in range(count)]
        assert logprobs["text_offset"] == [len(data.decode("utf-8", "ignore")) for data in before]
        assert len(logprobs["tokens"]) == count


@given(st.binary(min_size=1, max_size=24), borders, borders, borders)
def test_bytes_that_are_no_text_are_replaced_alike(
    data: bytes, slices: list[int], runs: list[int], reads: list[int]
) -> None:
    tokenizer = Sliced(cut(data, slices))
    pieces = read(tokenizer, {}, runs, reads)
    assert "".join(piece.text for piece in pieces) == data.decode("utf-8", "replace")
