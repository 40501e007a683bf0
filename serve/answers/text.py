"""Text completions: the object and its chunks, which have the same form."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from serve.answers import logprobs
from serve.answers.shared import Collected, Head
from serve.choice import Piece

_KIND = "text_completion"


@dataclass(frozen=True, slots=True)
class TextFormat:
    """How one request wants its answer. `_offsets`: choice -> characters sent so far, for text_offset."""

    head: Head
    tokens: logprobs.TokenBytes
    wanted_logprobs: int | None
    include_usage: bool
    _offsets: dict[int, int] = field(default_factory=dict)

    @property
    def only_text(self) -> bool:
        """Whether all chunks of a choice but the last differ in their text alone."""
        return self.wanted_logprobs is None

    def opening(self, choices: int) -> Iterator[dict[str, Any]]:
        """A text stream has no chunk before its first text."""
        return iter(())

    def chunks(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """One chunk for a piece that has anything to show."""
        if not (piece.text or piece.finish or piece.logprobs):
            return
        offset = self._offsets.get(piece.index, 0)
        self._offsets[piece.index] = offset + logprobs.text_length(self.tokens, piece.logprobs)
        chunk = {**self.head.envelope(_KIND), "choices": [self._choice(piece.index, [piece], offset)]}
        yield chunk | {"usage": None} if self.include_usage else chunk

    def closing(self, usage: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The usage, where it was asked for."""
        if self.include_usage:
            yield {**self.head.envelope(_KIND), "choices": [], "usage": usage}

    def whole(self, choices: list[Collected], usage: dict[str, Any]) -> dict[str, Any]:
        """The answer in one piece."""
        made = [self._choice(index, choice.pieces, 0) for index, choice in enumerate(choices)]
        return {**self.head.envelope(_KIND), "choices": made, "usage": usage}

    def _choice(self, index: int, pieces: list[Piece], offset: int) -> dict[str, Any]:
        shown = None
        if self.wanted_logprobs is not None:
            together = [item for piece in pieces for item in piece.logprobs]
            shown = logprobs.for_text(self.tokens, together, self.wanted_logprobs, offset)
        return {
            "index": index,
            "text": "".join(piece.text for piece in pieces),
            "logprobs": shown,
            "finish_reason": pieces[-1].finish,
            "stop_reason": pieces[-1].stop_reason,
        }
