"""One choice under way: its token events become text, a stop string ends it, its record is kept.

A stop string is found here and not by the engine: from then on the choice only waits for the engine to end
it too, whose last event brings the account of its work. Knows no link and no HTTP.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.detokenizer import Detokenizer, TextSource
from engine.records import RequestStats, TokenEvent, TokenLogprob
from serve.errors import GenerationError, ReplicaLost
from serve.metrics import Meter
from serve.record.keeper import Entry


@dataclass(frozen=True, slots=True)
class Piece:
    """What one read brought of a choice, `index` of the whole answer.

    logprobs: of the tokens that were read; the last ones may have no text yet, or none because a stop string
    began in them. token_ids: of the same tokens, and of one that ended the text. finish ("stop", "length")
    and stop_reason come with the last piece. prompt_logprobs: with the first piece, where asked for.
    """

    index: int
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: str | None = None
    stop_reason: str | int | None = None
    token_ids: tuple[int, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(slots=True)
class Tally:
    """Figures of one choice. stats: the engine's account, which comes with its last event."""

    prompt_tokens: int
    completion_tokens: int = 0
    stats: RequestStats | None = None
    started: float = field(default_factory=time.perf_counter)
    first_token: float | None = None
    last_token: float | None = None

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that the prefix cache held."""
        return 0 if self.stats is None else self.stats.cached_tokens

    @property
    def hidden_tokens(self) -> int:
        """Tokens of choices that were made beside it and not handed out."""
        return 0 if self.stats is None else self.stats.hidden_tokens


@dataclass(frozen=True, slots=True)
class Reading:
    """How token events of a request are read.

    include_stop: what ends a text is part of it. only_prompt: the prompt is scored and its choices are empty,
    whatever the engine makes.
    """

    text: TextSource
    eos_ids: frozenset[int]
    stops: tuple[str, ...] = ()
    include_stop: bool = False
    only_prompt: bool = False


class Choice:
    """The reader of one choice's events."""

    def __init__(self, index: int, reading: Reading, prompt_tokens: int, entry: Entry, meter: Meter) -> None:
        self.index = index
        self.tally = Tally(prompt_tokens)
        self.ended = False
        """Whether its last piece has been made, or its failure told."""
        self.prompt_logprobs: tuple[TokenLogprob, ...] | None = None
        """What its next piece tells of the prompt."""
        self._entry = entry
        self._meter = meter
        self._text: list[str] = []
        self._reading = reading
        self._detokenizer = Detokenizer(reading.text, reading.stops, reading.include_stop)
        self._last: Piece | None = None

    @property
    def is_settling(self) -> bool:
        """Whether its text is whole and only the engine's account is missing."""
        return self._last is not None and not self.ended

    def begin(self) -> None:
        """Its record exists from here on."""
        self._entry.begin()

    def read(self, events: Sequence[TokenEvent]) -> Piece | None:
        """One piece out of events that have gathered; none while it settles.

        Raises GenerationError where the engine failed, ReplicaLost where it was stopped.
        """
        if self._last is None:
            piece = self._empty(events) if self._reading.only_prompt else self._read(events)
            if piece.finish is None:
                return piece
            self._last = piece
        for event in events:
            if event.finish is not None:
                self.tally.stats = event.stats
                return self.settle()
        return None

    def settle(self) -> Piece:
        """The last piece, its record completed; without the engine's account if that has not come."""
        assert self._last is not None, "the text is not whole"
        self.end(self._last.finish or "stop", None)
        return self._last

    def end(self, reason: str, error: str | None) -> None:
        """Once only: complete the record and the metrics."""
        self.ended = True
        if self._entry.end(reason, error, self.tally, "".join(self._text)):
            self._meter.finished(self.tally, reason)

    def _read(self, events: Sequence[TokenEvent]) -> Piece:
        parts: list[str] = []
        logprobs: list[TokenLogprob] = []
        token_ids: list[int] = []
        end: tuple[str | None, str | int | None] = (None, None)
        for event in events:
            self._note(event)
            hides_end = event.stop_token is not None and self._hides(event.stop_token)
            delta = self._detokenizer.push(event.token_ids[:-1] if hides_end else event.token_ids)
            parts.append(delta.text)
            logprobs += (event.logprobs or ())[: delta.tokens_used]
            if delta.stopped is not None:
                token_ids += event.token_ids[: delta.tokens_used]
                end = ("stop", delta.stopped)
                break
            token_ids += event.token_ids
            if event.finish is not None:
                parts.append(self._detokenizer.finish())
                end = self._end_of(event)
                break
        text = "".join(parts)
        self._text.append(text)
        self.tally.completion_tokens += len(token_ids)
        of_prompt, self.prompt_logprobs = self.prompt_logprobs, None
        return Piece(self.index, text, tuple(logprobs), *end, tuple(token_ids), of_prompt)

    def _empty(self, events: Sequence[TokenEvent]) -> Piece:
        """The only piece of a choice that nobody wanted to be made."""
        last = next((event for event in events if event.finish is not None), None)
        if last is None:
            return Piece(self.index)
        self._end_of(last)
        return Piece(self.index, finish="length", prompt_logprobs=self.prompt_logprobs)

    def _hides(self, stop_token: int) -> bool:
        """Whether a token that ended the text is no part of it."""
        return not (self._reading.include_stop and self._reading.text.text_bytes(stop_token))

    def _end_of(self, event: TokenEvent) -> tuple[str | None, str | int | None]:
        """Why the choice ended with its last event: finish and stop_reason."""
        if event.finish == "error":
            raise GenerationError(f"generation failed: {event.error}")
        if event.finish == "abort":
            raise ReplicaLost
        if self._detokenizer.stopped is not None:  # by the text that was still held
            return "stop", self._detokenizer.stopped
        return event.finish, None if event.stop_token in self._reading.eos_ids else event.stop_token

    def _note(self, event: TokenEvent) -> None:
        if event.token_ids:
            now = time.perf_counter()
            self._meter.tokens(self.tally, len(event.token_ids), now)
            self.tally.first_token = self.tally.first_token or now
            self.tally.last_token = now
