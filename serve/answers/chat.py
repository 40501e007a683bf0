"""Chat completions: the object, and its chunks in the order that clients expect.

Order of a stream: for each choice a chunk with the role; chunks with content; for each choice a chunk with
finish_reason; if asked for, one chunk with the usage and no choices; [DONE].
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from serve.answers import logprobs
from serve.answers.shared import Collected, Head
from serve.choice import Piece


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How one request wants its answer."""

    head: Head
    tokens: logprobs.TokenBytes
    wanted_logprobs: int | None
    include_usage: bool

    def opening(self, choices: int) -> Iterator[dict[str, Any]]:
        """What comes before the first text: the role, for each choice."""
        for index in range(choices):
            yield self._chunk(index, {"role": "assistant", "content": ""})

    def chunks(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """The text of a piece, and its end if it is the last."""
        shown = self._logprobs(piece)
        if piece.text or (shown and shown["content"]):
            yield self._chunk(piece.index, {"content": piece.text}, shown)
        if piece.finish is not None:
            chunk = self._chunk(piece.index, {})
            chunk["choices"][0] |= {"finish_reason": piece.finish, "stop_reason": piece.stop_reason}
            yield chunk

    def closing(self, usage: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The usage, where it was asked for."""
        if self.include_usage:
            yield {**self.head.envelope("chat.completion.chunk"), "choices": [], "usage": usage}

    def whole(self, choices: list[Collected], usage: dict[str, Any]) -> dict[str, Any]:
        """The answer in one piece."""
        return {
            **self.head.envelope("chat.completion"),
            "choices": [self._choice(index, choice) for index, choice in enumerate(choices)],
            "usage": usage,
        }

    def _choice(self, index: int, choice: Collected) -> dict[str, Any]:
        all_logprobs = [item for piece in choice.pieces for item in piece.logprobs]
        shown = None if self.wanted_logprobs is None else logprobs.for_chat(self.tokens, all_logprobs)
        return {
            "index": index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": shown,
            "finish_reason": choice.last.finish,
            "stop_reason": choice.last.stop_reason,
        }

    def _logprobs(self, piece: Piece) -> dict[str, Any] | None:
        return None if self.wanted_logprobs is None else logprobs.for_chat(self.tokens, piece.logprobs)

    def _chunk(
        self, index: int, delta: dict[str, Any], shown: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": shown, "finish_reason": None}
        chunk = {**self.head.envelope("chat.completion.chunk"), "choices": [choice]}
        return chunk | {"usage": None} if self.include_usage else chunk
