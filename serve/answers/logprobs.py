"""Log probabilities in the shapes of the APIs: of chat choices, of text choices, of prompts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.records import TokenLogprob
from engine.token_text import TextStream

FLOOR = -9999.0
"""JSON has no minus infinity."""


class TokenBytes(Protocol):
    """What of a tokenizer is needed to name tokens."""

    def token_bytes(self, token_id: int) -> bytes: ...


class TokenText(TokenBytes, Protocol):
    """What of a tokenizer is needed to find tokens in a text."""

    def text_bytes(self, token_id: int) -> bytes: ...

    def stream(self) -> TextStream: ...

    def prompt_stream(self) -> TextStream: ...


@dataclass(frozen=True, slots=True)
class TokenNames:
    """How tokens are called. as_ids: "token_id:5" instead of their texts."""

    tokens: TokenBytes
    as_ids: bool = False

    def in_chat(self, token_id: int) -> str:
        """The text, with U+FFFD for half a character; its bytes stand beside it."""
        raw = self.tokens.token_bytes(token_id)
        return f"token_id:{token_id}" if self.as_ids else raw.decode("utf-8", "replace")

    def in_text(self, token_id: int) -> str:
        r"""The text, or bytes:\xc3 for what is no text alone, as OpenAI writes it: names are keys there."""
        if self.as_ids:
            return f"token_id:{token_id}"
        raw = self.tokens.token_bytes(token_id)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def for_chat(names: TokenNames, logprobs: Iterable[TokenLogprob]) -> dict[str, Any]:
    """The `logprobs` of a chat choice; bytes are the token's own, also where they are half a character."""
    return {
        "content": [
            _entry(names, item.token_id, item.logprob)
            | {"top_logprobs": [_entry(names, other, value) for other, value in item.top]}
            for item in logprobs
        ]
    }


def _entry(names: TokenNames, token_id: int, logprob: float) -> dict[str, Any]:
    raw = names.tokens.token_bytes(token_id)
    return {"token": names.in_chat(token_id), "logprob": max(logprob, FLOOR), "bytes": list(raw)}


class TextLogprobs:
    """The `logprobs` of one text choice, as it grows. wanted: alternatives beside each token.

    text_offset counts characters of the choice's own text that were whole before the token began.
    """

    def __init__(self, tokens: TokenText, names: TokenNames, wanted: int) -> None:
        self._tokens = tokens
        self._names = names
        self._wanted = wanted
        self._stream = tokens.stream()
        self._offset = 0

    def of_prompt(self, text: str, ids: Sequence[int], logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
        """Of the prompt that the text begins with; nothing is known of how likely its first token was."""
        stream, at, offsets = self._tokens.prompt_stream(), 0, []
        for token_id in ids:
            offsets.append(at)
            at += len(stream.push(self._shown_in(text, at, token_id)))
        self._offset = len(text)
        return _columns(
            offsets,
            [self._names.in_text(token_id) for token_id in ids],
            [None, *(max(item.logprob, FLOOR) for item in logprobs)],
            [None, *map(self._likeliest, logprobs)],
        )

    def of(self, logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
        """Of the next tokens."""
        offsets = []
        for item in logprobs:
            offsets.append(self._offset)
            self._offset += len(self._stream.push(self._tokens.text_bytes(item.token_id)))
        return _columns(
            offsets,
            [self._names.in_text(item.token_id) for item in logprobs],
            [max(item.logprob, FLOOR) for item in logprobs],
            list(map(self._likeliest, logprobs)),
        )

    def _likeliest(self, item: TokenLogprob) -> dict[str, float]:
        name = self._names.in_text
        top = {name(other): max(value, FLOOR) for other, value in item.top[: self._wanted]}
        return {**top, name(item.token_id): max(item.logprob, FLOOR)}

    def _shown_in(self, text: str, at: int, token_id: int) -> bytes:
        """What a token of a prompt is in its text: a special one shows only where it was written out."""
        raw = self._tokens.token_bytes(token_id)
        hidden = not self._tokens.text_bytes(token_id)
        return b"" if hidden and not text.startswith(raw.decode("utf-8", "replace"), at) else raw


def joined(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The `logprobs` of a text choice in one piece."""
    whole = _columns([], [], [], [])
    for part in parts:
        for name, column in part.items():
            whole[name] += column
    return whole


def for_prompt(
    names: TokenNames, ids: Sequence[int], logprobs: Sequence[TokenLogprob], wanted: int
) -> list[dict[str, Any] | None]:
    """`prompt_logprobs`: of each token of a prompt, by id, itself and so many likeliest ones; first null."""
    shown: list[dict[str, Any] | None] = [None] if ids else []
    for item in logprobs:
        ranked = enumerate(item.top[:wanted], start=1)
        entries = {str(other): _ranked(names, other, value, rank) for rank, (other, value) in ranked}
        own = {str(item.token_id): _ranked(names, item.token_id, item.logprob, item.rank)}
        shown.append(own | entries | own)
    return shown


def _ranked(names: TokenNames, token_id: int, logprob: float, rank: int | None) -> dict[str, Any]:
    return {"logprob": max(logprob, FLOOR), "rank": rank, "decoded_token": names.in_chat(token_id)}


def _columns(
    offsets: list[int],
    tokens: list[str],
    values: Sequence[float | None],
    top: Sequence[dict[str, float] | None],
) -> dict[str, Any]:
    return {
        "text_offset": offsets,
        "token_logprobs": list(values),
        "tokens": tokens,
        "top_logprobs": list(top),
    }
