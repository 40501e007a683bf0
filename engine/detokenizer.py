"""Token ids to streamed text: never a torn character, never a part of a stop string. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.token_text import TextStream


class TextSource(Protocol):
    """What of a Tokenizer is needed here."""

    def stream(self) -> TextStream: ...

    def text_bytes(self, token_id: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Delta:
    """What a push brought: text to send, the stop string that ended it, tokens read to that point."""

    text: str
    stopped: str | None
    tokens_used: int


class Detokenizer:
    """Text of one completion.

    The texts of all pushes and of finish(), joined, are decode(all ids) cut at the first stop string:
    the one that is complete first; of two complete at the same character the longer. Text that may
    still become a stop string is held back. Raises ValueError for an empty stop string.
    """

    def __init__(self, tokenizer: TextSource, stop: Sequence[str] = (), include_stop: bool = False) -> None:
        if "" in stop:
            raise ValueError("a stop string is empty; at least one character is needed")
        self._tokenizer = tokenizer
        self._stream = tokenizer.stream()
        self._stops = tuple(stop)
        self._longest = max(map(len, self._stops), default=0)
        self._include_stop = include_stop
        self._held = ""
        self.stopped: str | None = None

    def push(self, token_ids: Sequence[int]) -> Delta:
        """Read tokens up to a stop string; those after it are ignored."""
        parts: list[str] = []
        used = 0
        for token_id in token_ids:
            if self.stopped is not None:
                break
            used += 1
            parts.append(self._take(self._stream.push(self._tokenizer.text_bytes(token_id))))
        return Delta("".join(parts), self.stopped, used)

    def finish(self) -> str:
        """The text still held, U+FFFD for an incomplete character; `stopped` may still be set by it."""
        if self.stopped is not None:
            return ""
        sent = self._take(self._stream.finish())
        held, self._held = self._held, ""
        return sent + held

    def _take(self, text: str) -> str:
        """Add text and return what may be sent of all that is held."""
        if not self._stops:
            return text
        held = self._held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := held.find(stop)) >= 0]
        if found:
            end, start, self.stopped = min(found)
            self._held = ""
            return held[: end if self._include_stop else start]
        keep = self._may_stop(held)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def _may_stop(self, held: str) -> int:
        """Length of the longest end of `held` that begins a stop string."""
        for length in range(min(len(held), self._longest - 1), 0, -1):
            end = held[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
