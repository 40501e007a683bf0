from typing import Any

from engine.records import TokenLogprob
from serve.answers import logprobs
from serve.answers.assistant import Assistant
from serve.answers.chat import ChatFormat
from serve.answers.shared import Head, collect, fingerprint
from serve.answers.text import TextFormat
from serve.choice import Piece
from serve.parsing.plain import PlainParser

HEAD = Head("chatcmpl-1", 7, "m", "b-a")
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


class Bytes:
    def token_bytes(self, token_id: int) -> bytes:
        return {1: b"a", 2: b"\xc3", 3: b"\xa9"}[token_id]


def chat(wanted: int | None = None, include_usage: bool = False) -> ChatFormat:
    return ChatFormat(HEAD, Bytes(), Assistant(PlainParser), wanted, include_usage)


def text(wanted: int | None = None, include_usage: bool = False) -> TextFormat:
    return TextFormat(HEAD, Bytes(), wanted, include_usage)


def choice(chunk: dict[str, Any]) -> dict[str, Any]:
    (only,) = chunk["choices"]
    return dict(only)


def test_a_chat_stream_has_openais_order() -> None:
    shape = chat(include_usage=True)
    opening = list(shape.opening(2))
    assert [choice(chunk)["delta"] for chunk in opening] == [{"role": "assistant", "content": ""}] * 2
    assert [choice(chunk)["index"] for chunk in opening] == [0, 1]
    content, finish = shape.chunks(Piece(1, "hi", (), "stop", "END"))
    assert choice(content)["delta"] == {"content": "hi"}
    assert choice(content)["finish_reason"] is None
    assert choice(finish)["delta"] == {}
    assert (choice(finish)["finish_reason"], choice(finish)["stop_reason"]) == ("stop", "END")
    (last,) = shape.closing(USAGE)
    assert (last["choices"], last["usage"]) == ([], USAGE)
    assert {chunk["usage"] for chunk in (*opening, content, finish)} == {None}
    assert {chunk["id"] for chunk in (*opening, content, finish, last)} == {"chatcmpl-1"}
    assert {chunk["system_fingerprint"] for chunk in (*opening, content, finish, last)} == {"b-a"}


def test_usage_is_absent_unless_asked_for() -> None:
    shape = chat()
    assert list(shape.closing(USAGE)) == []
    assert all("usage" not in chunk for chunk in (*shape.opening(1), *shape.chunks(Piece(0, "x"))))


def test_nothing_is_sent_where_nothing_came() -> None:
    assert list(chat().chunks(Piece(0))) == []
    assert list(text().chunks(Piece(0))) == []


def test_a_whole_chat() -> None:
    choices = collect(
        [Piece(0, "a"), Piece(1, "x"), Piece(0, "b", (), "length"), Piece(1, "", (), "stop", 5)], 2
    )
    answer = chat().whole(choices, USAGE)
    assert answer["object"] == "chat.completion"
    assert [item["message"]["content"] for item in answer["choices"]] == ["ab", "x"]
    assert [(item["finish_reason"], item["stop_reason"]) for item in answer["choices"]] == [
        ("length", None),
        ("stop", 5),
    ]
    assert answer["usage"] == USAGE


def test_logprobs_of_a_chat_keep_the_tokens_own_bytes() -> None:
    piece = Piece(0, "é", (TokenLogprob(2, -0.5, ((2, -0.5), (1, float("-inf")))), TokenLogprob(3, -0.1)))
    (chunk,) = chat(2).chunks(piece)
    first, second = choice(chunk)["logprobs"]["content"]
    assert (first["bytes"], second["bytes"]) == ([0xC3], [0xA9])
    assert first["token"] == "\ufffd"
    assert first["top_logprobs"][1] == {"token": "a", "logprob": logprobs.FLOOR, "bytes": [97]}
    assert chat().whole(collect([piece], 1), USAGE)["choices"][0]["logprobs"] is None


def test_text_offsets_go_on_from_chunk_to_chunk() -> None:
    shape = text(1)
    offsets: list[int] = []
    for _ in range(3):
        (chunk,) = shape.chunks(Piece(0, "a", (TokenLogprob(1, -1.0, ((1, -1.0),)),)))
        offsets += choice(chunk)["logprobs"]["text_offset"]
    assert offsets == [0, 1, 2]


def test_a_whole_text_has_all_logprobs() -> None:
    one = TokenLogprob(1, -1.0, ((1, -1.0), (2, -2.0)))
    answer = text(2).whole(collect([Piece(0, "a", (one,)), Piece(0, "a", (one,), "stop")], 1), USAGE)
    shown = answer["choices"][0]["logprobs"]
    assert shown["tokens"] == ["a", "a"]
    assert shown["token_logprobs"] == [-1.0, -1.0]
    assert shown["text_offset"] == [0, 1]
    assert shown["top_logprobs"][0] == {"a": -1.0, "\ufffd": -2.0}


def test_the_fingerprint_names_base_and_adapter() -> None:
    base, adapter = "sha256:" + "a" * 64, "sha256:" + "b" * 64
    assert fingerprint(base, adapter) == "a" * 12 + "-" + "b" * 12
    assert fingerprint(base, None) == "a" * 12 + "-base"
