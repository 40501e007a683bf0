"""Text completions: the object and its chunks, which have the same form."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from serve.answers.logprobs import TextLogprobs, TokenNames, TokenText, for_prompt, joined
from serve.answers.shared import Collected, Head
from serve.answers.shown import Shown
from serve.choice import Piece
from serve.order import Prompt

_KIND = "text_completion"


@dataclass(frozen=True, slots=True)
class TextFormat:
    """How one request wants its answer: so many choices of each prompt. `_begun`: those with a chunk sent."""

    head: Head
    tokens: TokenText
    shown: Shown
    prompts: Sequence[Prompt]
    choices: int
    _begun: dict[int, TextLogprobs] = field(default_factory=dict)

    @property
    def only_text(self) -> bool:
        """Whether all chunks of a choice but the first and the last differ in their text alone."""
        return self.shown.only_text

    def opening(self, choices: int) -> Iterator[dict[str, Any]]:
        """A text stream has no chunk before its first text."""
        return iter(())

    def chunks(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """One chunk for a piece that has anything to show; the first of a choice begins with its prompt."""
        begins = piece.index not in self._begun
        tokens = (self.shown.logprobs is not None or self.shown.token_ids) and piece.token_ids
        if not (piece.text or piece.finish or tokens or (begins and self.shown.echo)):
            return
        if begins:
            self._begun[piece.index] = self._logprobs()
        choice = self._choice(piece.index, [piece], self._begun[piece.index], begins)
        chunk = {**self.head.envelope(_KIND), "choices": [choice]}
        yield chunk | {"usage": None} if self.shown.usage else chunk

    def closing(self, usage: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The usage, where it was asked for."""
        if self.shown.usage:
            yield {**self.head.envelope(_KIND), "choices": [], "usage": usage}

    def whole(self, choices: list[Collected], usage: dict[str, Any]) -> dict[str, Any]:
        """The answer in one piece."""
        made = [
            self._choice(index, choice.pieces, self._logprobs(), True) for index, choice in enumerate(choices)
        ]
        return {**self.head.envelope(_KIND), "choices": made, "usage": usage}

    def _logprobs(self) -> TextLogprobs:
        names = TokenNames(self.tokens, self.shown.tokens_as_ids)
        return TextLogprobs(self.tokens, names, self.shown.logprobs or 0)

    def _choice(
        self, index: int, pieces: list[Piece], logprobs: TextLogprobs, begins: bool
    ) -> dict[str, Any]:
        prompt = self.prompts[index // self.choices]
        of_prompt = next((piece.prompt_logprobs for piece in pieces if piece.prompt_logprobs is not None), ())
        text, shown = "".join(piece.text for piece in pieces), None
        if self.shown.logprobs is not None:
            echoed = begins and self.shown.echo
            parts = [logprobs.of_prompt(prompt.text, prompt.ids, of_prompt)] if echoed else []
            shown = joined([*parts, logprobs.of([item for piece in pieces for item in piece.logprobs])])
        choice = {
            "index": index,
            "text": prompt.text + text if begins and self.shown.echo else text,
            "logprobs": shown,
            "finish_reason": pieces[-1].finish,
            "stop_reason": pieces[-1].stop_reason,
        }
        return choice | self._more(pieces, prompt, of_prompt, begins)

    def _more(self, pieces: list[Piece], prompt: Prompt, of_prompt: Any, begins: bool) -> dict[str, Any]:
        """What vLLM's clients may ask for beside OpenAI's fields."""
        more: dict[str, Any] = {}
        if self.shown.token_ids:
            more["token_ids"] = [token_id for piece in pieces for token_id in piece.token_ids]
            if begins:
                more["prompt_token_ids"] = list(prompt.ids)
        if self.shown.prompt_logprobs is not None:
            names = TokenNames(self.tokens, self.shown.tokens_as_ids)
            more["prompt_logprobs"] = for_prompt(names, prompt.ids, of_prompt, self.shown.prompt_logprobs)
        return more
