"""Streamed text: joined it is the decoded text cut at the first stop string, and no piece shows more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.detokenizer import Detokenizer
from engine.token_text import TokenText
from engine.tokenizer import Tokenizer
from tests.unit.engine.conftest import byte_fallback_encoder, byte_level_encoder


class Source:
    """Text side of a tokenizer without a folder, for tests that run hundreds of times."""

    def __init__(self, kind: str) -> None:
        self.encoder = {"level": byte_level_encoder, "fallback": byte_fallback_encoder}[kind]()
        decoder = {"level": {"type": "ByteLevel"}, "fallback": {"decoders": FALLBACK_STEPS}}[kind]
        self.text = TokenText(decoder, self.encoder.id_to_token)
        self.stream = self.text.stream
        added = self.encoder.get_added_tokens_decoder()
        self.special = {id_ for id_, token in added.items() if token.special}

    def text_bytes(self, token_id: int) -> bytes:
        return b"" if token_id in self.special else self.text.bytes_of(token_id)


FALLBACK_STEPS = [{"type": kind} for kind in ("Replace", "ByteFallback", "Fuse", "Strip")]
SOURCES = {kind: Source(kind) for kind in ("level", "fallback")}

kinds = st.sampled_from(sorted(SOURCES))
words = st.sampled_from(
    ["the ", "STOP", "ST", "OP", " dog", "🙂", "👩‍👩‍👧", "é", "你好", "\n", "<tool call>", "abab"]
)
texts = st.lists(words | st.text(max_size=4), max_size=12).map("".join)
stops = st.lists(
    st.sampled_from(["STOP", "TOP", "dog", "🙂", "ab", "abab", "好", "\n\n", "the d", "👩‍👧"])
    | st.text(min_size=1, max_size=3),
    max_size=3,
)


def cut(text: str, stop: list[str], include: bool = False) -> tuple[str, str | None]:
    """The oracle, character by character: the stop that is complete first, the longer of two."""
    for end in range(1, len(text) + 1):
        found = [s for s in stop if text[:end].endswith(s)]
        if found:
            longest = max(found, key=len)
            return (text[:end] if include else text[: end - len(longest)]), longest
    return text, None


def chunks(ids: list[int], sizes: list[int]) -> list[list[int]]:
    parts, at = [], 0
    for size in [*sizes, len(ids)]:
        parts.append(ids[at : at + size])
        at += size
    return parts


@settings(max_examples=400)
@given(
    kind=kinds, text=texts, stop=stops, sizes=st.lists(st.integers(0, 5), max_size=30), include=st.booleans()
)
def test_joined_stream_is_the_text_cut_at_the_first_stop(
    kind: str, text: str, stop: list[str], sizes: list[int], include: bool
) -> None:
    source = SOURCES[kind]
    ids = source.encoder.encode(text, add_special_tokens=False).ids
    whole = source.encoder.decode(ids)
    want, stopped = cut(whole, stop, include)
    reader, sent = Detokenizer(source, stop, include), ""
    for part in chunks(ids, sizes):
        delta = reader.push(part)
        sent += delta.text
        assert want.startswith(sent)
        assert delta.tokens_used <= len(part)
    assert sent + reader.finish() == want
    assert reader.stopped == stopped


@settings(max_examples=400)
@given(kind=kinds, ids=st.lists(st.integers(0, 500), max_size=40), stop=stops)
def test_any_token_ids_give_whole_characters(kind: str, ids: list[int], stop: list[str]) -> None:
    """Also ids that no text gives: half characters, special tokens, ids outside the vocabulary."""
    source = SOURCES[kind]
    stream = source.stream()
    whole = stream.push(b"".join(map(source.text_bytes, ids))) + stream.finish()
    reader = Detokenizer(source, stop)
    sent = "".join(reader.push([token_id]).text for token_id in ids)
    assert sent + reader.finish() == cut(whole, stop)[0]


@settings(max_examples=400)
@given(ids=st.lists(st.integers(0, 500), max_size=40))
def test_byte_level_text_is_the_library_s_own(ids: list[int]) -> None:
    source = SOURCES["level"]
    reader = Detokenizer(source)
    assert reader.push(ids).text + reader.finish() == source.encoder.decode(ids)


def push_text(
    tokenizer: Tokenizer, text: str, *stop: str, include_stop: bool = False
) -> tuple[list[str], Detokenizer]:
    reader = Detokenizer(tokenizer, stop, include_stop)
    return [reader.push([token_id]).text for token_id in tokenizer.encode(text)], reader


def test_stop_inside_one_token_cuts_the_token(byte_level: Tokenizer) -> None:
    ids = byte_level.encode(" the")
    assert len(ids) == 1
    delta = Detokenizer(byte_level, ["h"]).push(ids)
    assert (delta.text, delta.stopped, delta.tokens_used) == (" t", "h", 1)


def test_stop_across_tokens_leaks_no_part(byte_level: Tokenizer) -> None:
    parts, reader = push_text(byte_level, "one zxqw two", "zxqw")
    assert "".join(parts) == "one "
    assert reader.stopped == "zxqw"
    assert reader.finish() == ""


def test_false_start_is_sent_once_it_is_refuted(byte_level: Tokenizer) -> None:
    parts, reader = push_text(byte_level, "a zxqv b", "zxqw")
    assert "".join(parts) == "a zxqv b"
    assert not any(part.endswith(("z", "zx", "zxq")) for part in parts)
    assert reader.stopped is None


def test_false_start_at_the_end_is_flushed(byte_level: Tokenizer) -> None:
    parts, reader = push_text(byte_level, "a zxq", "zxqw")
    assert "".join(parts) == "a "
    assert reader.finish() == "zxq"


def test_stop_is_kept_where_asked(byte_level: Tokenizer) -> None:
    parts, _ = push_text(byte_level, "one zxqw two", "zxqw", include_stop=True)
    assert "".join(parts) == "one zxqw"


def test_tokens_after_a_stop_are_not_read(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("a STOP b c d")
    reader = Detokenizer(byte_level, ["STOP"])
    delta = reader.push(ids)
    assert delta.text == "a "
    assert 0 < delta.tokens_used < len(ids)
    assert byte_level.decode(ids[: delta.tokens_used]).endswith("STOP")
    again = reader.push(ids)
    assert (again.text, again.stopped, again.tokens_used) == ("", "STOP", 0)


def test_character_of_several_tokens_comes_whole(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("𝄞")
    assert len(ids) > 1
    reader = Detokenizer(byte_level)
    assert [reader.push([token_id]).text for token_id in ids] == [""] * (len(ids) - 1) + ["𝄞"]


def test_character_cut_by_the_length_limit_is_one_replacement(byte_level: Tokenizer) -> None:
    reader = Detokenizer(byte_level)
    assert reader.push(byte_level.encode("a𝄞")[:-1]).text == "a"
    assert reader.finish() == "\ufffd"


def test_special_tokens_add_no_text(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("<|im_start|>the dog<|im_end|>")
    assert Detokenizer(byte_level).push(ids).text == "the dog"


def test_empty_stop_string_is_refused(byte_level: Tokenizer) -> None:
    with pytest.raises(ValueError, match="empty"):
        Detokenizer(byte_level, ["a", ""])
