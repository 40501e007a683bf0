"""Chat completions: the object, and its chunks in the order that clients expect.

Order of a stream: for each choice a chunk with the role; chunks with reasoning, content and calls; for each
choice a chunk with finish_reason; if asked for, one chunk with the usage and no choices; [DONE].
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from serve.answers import logprobs
from serve.answers.assistant import Assistant
from serve.answers.shared import Collected, Head
from serve.choice import Piece


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How one request wants its answer. assistant: puts the messages of its choices together."""

    head: Head
    tokens: logprobs.TokenBytes
    assistant: Assistant
    wanted_logprobs: int | None
    include_usage: bool

    @property
    def only_text(self) -> bool:
        """Whether all chunks of a choice but the first and the last differ in their text alone."""
        return self.wanted_logprobs is None and self.assistant.only_content

    def opening(self, choices: int) -> Iterator[dict[str, Any]]:
        """What comes before the first text: the role, for each choice."""
        for index in range(choices):
            yield self._chunk(index, {"role": "assistant", "content": ""})

    def chunks(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """The text of a piece, and its end if it is the last."""
        shown = self._logprobs(piece)
        deltas = self.assistant.deltas(piece)
        if not deltas and shown and shown["content"]:  # of text that is held back
            deltas = [{"content": ""}]
        for place, delta in enumerate(deltas):
            yield self._chunk(piece.index, delta, None if place else shown)
        if piece.finish is not None:
            chunk = self._chunk(piece.index, {})
            finish = self.assistant.finish_reason(piece)
            chunk["choices"][0] |= {"finish_reason": finish, "stop_reason": piece.stop_reason}
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
        for piece in choice.pieces:
            self.assistant.deltas(piece)
        all_logprobs = [item for piece in choice.pieces for item in piece.logprobs]
        shown = None if self.wanted_logprobs is None else logprobs.for_chat(self.tokens, all_logprobs)
        return {
            "index": index,
            "message": self.assistant.message(index),
            "logprobs": shown,
            "finish_reason": self.assistant.finish_reason(choice.last),
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
