"""Log probabilities in the two shapes of the API."""

from collections.abc import Iterable
from typing import Any, Protocol

from engine.records import TokenLogprob

FLOOR = -9999.0
"""JSON has no minus infinity."""


class TokenBytes(Protocol):
    """What of a tokenizer is needed here."""

    def token_bytes(self, token_id: int) -> bytes: ...


def for_chat(tokens: TokenBytes, logprobs: Iterable[TokenLogprob]) -> dict[str, Any]:
    """The `logprobs` of a chat choice; bytes are the token's own, also where they are half a character."""
    return {
        "content": [
            _entry(tokens, item.token_id, item.logprob)
            | {"top_logprobs": [_entry(tokens, other, value) for other, value in item.top]}
            for item in logprobs
        ]
    }


def _entry(tokens: TokenBytes, token_id: int, logprob: float) -> dict[str, Any]:
    raw = tokens.token_bytes(token_id)
    return {"token": _text(raw), "logprob": max(logprob, FLOOR), "bytes": list(raw)}


def for_text(
    tokens: TokenBytes, logprobs: Iterable[TokenLogprob], wanted: int, offset: int
) -> dict[str, Any]:
    """The `logprobs` of a text choice. offset: characters that came before, in the joined token texts."""
    shown: dict[str, list[Any]] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
    for item in logprobs:
        text = _text(tokens.token_bytes(item.token_id))
        shown["text_offset"].append(offset)
        shown["tokens"].append(text)
        shown["token_logprobs"].append(max(item.logprob, FLOOR))
        likeliest = {
            _text(tokens.token_bytes(other)): max(value, FLOOR) for other, value in item.top[:wanted]
        }
        shown["top_logprobs"].append({**likeliest, text: max(item.logprob, FLOOR)} if wanted else None)
        offset += len(text)
    return shown


def text_length(tokens: TokenBytes, logprobs: Iterable[TokenLogprob]) -> int:
    """Characters that these tokens add to the offset of the next ones."""
    return sum(len(_text(tokens.token_bytes(item.token_id))) for item in logprobs)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
