from dataclasses import replace
from typing import Any

from engine.records import TokenLogprob
from serve.answers import logprobs
from serve.answers.assistant import Assistant
from serve.answers.chat import ChatFormat
from serve.answers.shared import Head, collect, fingerprint
from serve.answers.shown import Shown
from serve.answers.text import TextFormat
from serve.choice import Piece
from serve.order import Prompt
from serve.parsing.plain import PlainParser
from tests.unit.serve.letters import SPECIAL, Letters

HEAD = Head("chatcmpl-1", 7, "m", "b-a")
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


A, FIRST, SECOND = ord("a"), 0xC3, 0xA9


def chat(wanted: int | None = None, include_usage: bool = False) -> ChatFormat:
    return ChatFormat(HEAD, Letters(), Assistant(PlainParser), Shown(logprobs=wanted, usage=include_usage))


def text(wanted: int | None = None, prompt: str = "p", **shown: Any) -> TextFormat:
    prompts = [Prompt(tuple(prompt.encode()), (), prompt)]
    return TextFormat(HEAD, Letters(), Shown(logprobs=wanted, **shown), prompts, 2)


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
    piece = Piece(
        0, "é", (TokenLogprob(FIRST, -0.5, ((FIRST, -0.5), (A, float("-inf")))), TokenLogprob(SECOND, -0.1))
    )
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
        (chunk,) = shape.chunks(Piece(0, "a", (TokenLogprob(A, -1.0, ((A, -1.0),)),), token_ids=(A,)))
        offsets += choice(chunk)["logprobs"]["text_offset"]
    assert offsets == [0, 1, 2]


def test_a_whole_text_has_all_logprobs() -> None:
    one = TokenLogprob(A, -1.0, ((A, -1.0), (FIRST, -2.0)))
    answer = text(2).whole(collect([Piece(0, "a", (one,)), Piece(0, "a", (one,), "stop")], 1), USAGE)
    shown = answer["choices"][0]["logprobs"]
    assert shown["tokens"] == ["a", "a"]
    assert shown["token_logprobs"] == [-1.0, -1.0]
    assert shown["text_offset"] == [0, 1]
    assert shown["top_logprobs"][0] == {"a": -1.0, "bytes:\\xc3": -2.0}


def test_the_fingerprint_names_base_and_adapter() -> None:
    base, adapter = "sha256:" + "a" * 64, "sha256:" + "b" * 64
    assert fingerprint(base, adapter) == "a" * 12 + "-" + "b" * 12
    assert fingerprint(base, None) == "a" * 12 + "-base"


def probability(token_id: int, value: float = -1.0, rank: int | None = 4) -> TokenLogprob:
    return TokenLogprob(token_id, value, ((A, -0.5), (ord("b"), -0.75)), rank)


def test_offsets_count_whole_characters_of_the_text() -> None:
    items = tuple(map(probability, (A, FIRST, SECOND, SPECIAL, ord("z"))))
    answer = text(0).whole(collect([Piece(0, "aéz", items, "stop"), Piece(1, "", (), "stop")], 2), USAGE)
    shown = answer["choices"][0]["logprobs"]
    assert shown["tokens"] == ["a", "bytes:\\xc3", "bytes:\\xa9", "<s>", "z"]
    assert shown["text_offset"] == [0, 1, 1, 2, 2]
    assert shown["top_logprobs"][0] == {"a": -1.0}


def test_an_echo_begins_the_text_and_its_first_token_has_no_probability() -> None:
    shape = text(1, "né", echo=True)
    of_prompt = tuple(map(probability, "né".encode()[1:]))
    piece = Piece(0, "x", (probability(ord("x")),), "length", None, (ord("x"),), of_prompt)
    (chunk,) = shape.chunks(piece)
    whole = text(1, "né", echo=True).whole(collect([piece, replace(piece, index=1)], 2), USAGE)
    for made in (choice(chunk), *whole["choices"]):
        assert made["text"] == "néx"
        assert made["logprobs"] == {
            "text_offset": [0, 1, 1, 2],
            "token_logprobs": [None, -1.0, -1.0, -1.0],
            "tokens": ["n", "bytes:\\xc3", "bytes:\\xa9", "x"],
            "top_logprobs": [
                None,
                {"a": -0.5, "bytes:\\xc3": -1.0},
                {"a": -0.5, "bytes:\\xa9": -1.0},
                {"a": -0.5, "x": -1.0},
            ],
        }


def test_an_echo_comes_once_a_choice_of_a_stream_also_without_any_text() -> None:
    shape = text(None, "p", echo=True)
    chunks = [choice(chunk) for index in (1, 0, 1) for chunk in shape.chunks(Piece(index))]
    assert [(made["index"], made["text"]) for made in chunks] == [(1, "p"), (0, "p")]


def test_a_special_token_of_an_echo_has_room_only_where_it_was_written() -> None:
    shown = Shown(logprobs=0, echo=True)
    for prompt, offsets in (("<s>ab", [0, 0, 3, 4, 5]), ("ab", [0, 0, 0, 1, 2])):
        sent = Prompt((0, SPECIAL, *b"ab"), (), prompt)
        shape = TextFormat(HEAD, Letters(), shown, [sent], 1)
        (chunk,) = shape.chunks(Piece(0, "z", (probability(ord("z")),), "stop", token_ids=(1,)))
        assert choice(chunk)["logprobs"]["text_offset"] == offsets


def test_tokens_may_be_named_by_their_ids() -> None:
    item = probability(FIRST)
    (chunk,) = text(1, tokens_as_ids=True).chunks(Piece(0, "", (item,), "stop"))
    assert choice(chunk)["logprobs"]["tokens"] == ["token_id:195"]
    assert choice(chunk)["logprobs"]["top_logprobs"] == [{"token_id:97": -0.5, "token_id:195": -1.0}]
    shape = ChatFormat(HEAD, Letters(), Assistant(PlainParser), Shown(logprobs=1, tokens_as_ids=True))
    shown = shape.whole(collect([Piece(0, "", (item,), "stop")], 1), USAGE)["choices"][0]["logprobs"]
    assert shown["content"][0]["token"] == "token_id:195"
    assert shown["content"][0]["bytes"] == [FIRST]


def test_token_ids_come_beside_the_text_and_those_of_the_prompt_once() -> None:
    pieces = [
        Piece(0, "a", token_ids=(A,)),
        Piece(0, "", token_ids=(FIRST,)),
        Piece(0, "", (), "stop", None, (0,)),
    ]
    shape = text(token_ids=True)
    chunks = [choice(chunk) for piece in pieces for chunk in shape.chunks(piece)]
    assert [made["token_ids"] for made in chunks] == [[A], [FIRST], [0]]
    assert [made.get("prompt_token_ids") for made in chunks] == [[ord("p")], None, None]
    whole = text(token_ids=True).whole(collect([*pieces, Piece(1, "", (), "stop")], 2), USAGE)
    assert [made["token_ids"] for made in whole["choices"]] == [[A, FIRST, 0], []]
    assert whole["choices"][1]["prompt_token_ids"] == [ord("p")]

    talk = ChatFormat(HEAD, Letters(), Assistant(PlainParser), Shown(token_ids=True), (7, 8))
    assert [chunk["prompt_token_ids"] for chunk in talk.opening(2)] == [[7, 8]] * 2
    parts = [choice(chunk) for piece in pieces for chunk in talk.chunks(piece)]
    assert [made.get("token_ids") for made in parts] == [[A], [FIRST], [0], None]
    answer = talk.whole(collect(pieces, 1), USAGE)
    assert (answer["prompt_token_ids"], answer["choices"][0]["token_ids"]) == ([7, 8], [A, FIRST, 0])


def test_log_probabilities_of_a_prompt_have_vllms_shape() -> None:
    of_prompt = (probability(FIRST, -2.0), probability(A, -0.5, 1))
    piece = Piece(0, "x", (), "stop", None, (), of_prompt)
    expected = [
        None,
        {
            "195": {"logprob": -2.0, "rank": 4, "decoded_token": "\ufffd"},
            "97": {"logprob": -0.5, "rank": 1, "decoded_token": "a"},
            "98": {"logprob": -0.75, "rank": 2, "decoded_token": "b"},
        },
        {
            "97": {"logprob": -0.5, "rank": 1, "decoded_token": "a"},
            "98": {"logprob": -0.75, "rank": 2, "decoded_token": "b"},
        },
    ]
    answer = text(prompt_logprobs=2).whole(collect([piece, replace(piece, index=1)], 2), USAGE)
    assert [made["prompt_logprobs"] for made in answer["choices"]] == [expected, expected]
    talk = ChatFormat(HEAD, Letters(), Assistant(PlainParser), Shown(prompt_logprobs=0), (1, FIRST, A))
    assert [len(entry or ()) for entry in talk.whole(collect([piece], 1), USAGE)["prompt_logprobs"]] == [
        0,
        1,
        1,
    ]
