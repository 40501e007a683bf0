"""Chat completions: the object, and its chunks in the order that clients expect.

Order of a stream: for each choice a chunk with the role; chunks with reasoning, content and calls; for each
choice a chunk with finish_reason; if asked for, one chunk with the usage and no choices; [DONE].
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.records import TokenLogprob
from serve.answers.assistant import Assistant
from serve.answers.logprobs import TokenBytes, TokenNames, for_chat, for_prompt
from serve.answers.shared import Collected, Head
from serve.answers.shown import Shown
from serve.choice import Piece


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """How one request wants its answer.

    assistant: puts the messages of its choices together. prompt: its token ids.
    """

    head: Head
    tokens: TokenBytes
    assistant: Assistant
    shown: Shown
    prompt: Sequence[int] = ()

    @property
    def only_text(self) -> bool:
        """Whether all chunks of a choice but the first and the last differ in their text alone."""
        return self.shown.only_text and self.assistant.only_content

    def opening(self, choices: int) -> Iterator[dict[str, Any]]:
        """What comes before the first text: the role, for each choice."""
        more = {"prompt_token_ids": list(self.prompt)} if self.shown.token_ids else {}
        for index in range(choices):
            yield self._chunk(index, {"role": "assistant", "content": ""}) | more

    def chunks(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """The text of a piece, and its end if it is the last."""
        shown = self._logprobs(piece.logprobs)
        ids = self._token_ids([piece])
        deltas = self.assistant.deltas(piece)
        if not deltas and ((shown and shown["content"]) or ids.get("token_ids")):  # of text that is held back
            deltas = [{"content": ""}]
        for place, delta in enumerate(deltas):
            chunk = self._chunk(piece.index, delta, None if place else shown)
            chunk["choices"][0] |= {} if place else ids
            yield chunk
        if piece.finish is not None:
            chunk = self._chunk(piece.index, {})
            finish = self.assistant.finish_reason(piece)
            chunk["choices"][0] |= {"finish_reason": finish, "stop_reason": piece.stop_reason}
            yield chunk

    def closing(self, usage: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The usage, where it was asked for."""
        if self.shown.usage:
            yield {**self.head.envelope("chat.completion.chunk"), "choices": [], "usage": usage}

    def whole(self, choices: list[Collected], usage: dict[str, Any]) -> dict[str, Any]:
        """The answer in one piece."""
        answer = {
            **self.head.envelope("chat.completion"),
            "choices": [self._choice(index, choice) for index, choice in enumerate(choices)],
            "usage": usage,
        }
        return answer | self._of_prompt(choices[0].pieces[0].prompt_logprobs)

    def _choice(self, index: int, choice: Collected) -> dict[str, Any]:
        for piece in choice.pieces:
            self.assistant.deltas(piece)
        made = {
            "index": index,
            "message": self.assistant.message(index),
            "logprobs": self._logprobs([item for piece in choice.pieces for item in piece.logprobs]),
            "finish_reason": self.assistant.finish_reason(choice.last),
            "stop_reason": choice.last.stop_reason,
        }
        return made | self._token_ids(choice.pieces)

    def _logprobs(self, logprobs: Iterable[TokenLogprob]) -> dict[str, Any] | None:
        return None if self.shown.logprobs is None else for_chat(self._names, logprobs)

    def _token_ids(self, pieces: Iterable[Piece]) -> dict[str, Any]:
        if not self.shown.token_ids:
            return {}
        return {"token_ids": [token_id for piece in pieces for token_id in piece.token_ids]}

    def _of_prompt(self, logprobs: Sequence[TokenLogprob] | None) -> dict[str, Any]:
        """What vLLM's clients may ask for of the prompt."""
        more: dict[str, Any] = {"prompt_token_ids": list(self.prompt)} if self.shown.token_ids else {}
        if self.shown.prompt_logprobs is not None:
            wanted = self.shown.prompt_logprobs
            more["prompt_logprobs"] = for_prompt(self._names, self.prompt, logprobs or (), wanted)
        return more

    @property
    def _names(self) -> TokenNames:
        return TokenNames(self.tokens, self.shown.tokens_as_ids)

    def _chunk(
        self, index: int, delta: dict[str, Any], shown: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": shown, "finish_reason": None}
        chunk = {**self.head.envelope("chat.completion.chunk"), "choices": [choice]}
        return chunk | {"usage": None} if self.shown.usage else chunk
