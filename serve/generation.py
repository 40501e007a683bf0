"""One completion under way: token events of a replica become text, a stop string ends it, a record is kept.

Who frees what: a Generation that was started must be closed; closing one that has not finished aborts it on
the replica. Its record begins before the replica is asked and ends before the last piece is handed out, so
no answer reaches a client that the spool does not hold. Knows no HTTP.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field

from engine.detokenizer import Detokenizer
from engine.records import Request, RequestStats, TokenEvent, TokenLogprob
from engine.tokenizer import Tokenizer
from serve.errors import GenerationError, RemoteError, ReplicaLost
from serve.link import ReplicaLink, TokenStream
from serve.metrics import Meter
from serve.record.keeper import Entry

STATS_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Piece:
    """What one read brought. `finish` ("stop", "length") and `stop_reason` come with the last piece."""

    index: int
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: str | None = None
    stop_reason: str | int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What is wanted of one completion, the `index`-th choice of its request.

    force: its adapter was accepted although it was trained on another base model.
    """

    index: int
    request: Request
    force: bool = False
    stops: tuple[str, ...] = ()
    include_stop: bool = False


@dataclass(slots=True)
class Tally:
    """Figures of one completion; `cached_tokens` is known once the replica has reported its account."""

    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0
    stats: RequestStats | None = None
    started: float = field(default_factory=time.perf_counter)
    first_token: float | None = None
    last_token: float | None = None


class Generation:
    """One completion on one replica."""

    def __init__(self, job: Job, link: ReplicaLink, tokenizer: Tokenizer, entry: Entry, meter: Meter) -> None:
        self.job = job
        self.tally = Tally(prompt_tokens=len(job.request.prompt))
        self._link = link
        self._entry = entry
        self._meter = meter
        self._text: list[str] = []
        self._stream: TokenStream | None = None
        self._detokenizer = Detokenizer(tokenizer, job.stops, job.include_stop)
        self._eos_ids = tokenizer.eos_ids

    async def start(self) -> None:
        """Return once the replica has taken the request. Raises RemoteError (its refusal) or ReplicaLost."""
        self._entry.begin()
        try:
            self._stream = self._link.open(self.job.request, force=self.job.force)
            await self._stream.accepted()
        except (RemoteError, ReplicaLost) as error:
            self._finish("error", str(error))
            raise

    async def pieces(self) -> AsyncIterator[Piece]:
        """Text as it comes, the last piece with the reason. Raises GenerationError or ReplicaLost."""
        assert self._stream is not None, "start() comes first"
        while True:
            try:
                piece = self._read(await self._stream.take())
                if piece.finish is not None:
                    await self._settle(self._stream)
                    self._finish(piece.finish, None)
            except (GenerationError, RemoteError, ReplicaLost) as error:
                self._finish("error", str(error))
                raise
            yield piece
            if piece.finish is not None:
                return

    def close(self) -> None:
        """Free the replica of the request; one that was not finished counts as aborted by its client."""
        if self._stream is not None:
            self._stream.close()
        self._finish("abort", None)

    def _read(self, events: list[TokenEvent]) -> Piece:
        """One piece out of all events that had gathered."""
        parts: list[str] = []
        logprobs: list[TokenLogprob] = []
        for place, event in enumerate(events):
            self._note(event)
            visible = event.token_ids[:-1] if event.stop_token is not None else event.token_ids
            delta = self._detokenizer.push(visible)
            self.tally.completion_tokens += delta.tokens_used + (event.stop_token is not None)
            parts.append(delta.text)
            logprobs.extend((event.logprobs or ())[: delta.tokens_used])
            if delta.stopped is not None:
                self._account(events[place:])
                return self._piece(parts, logprobs, "stop", delta.stopped)
            if event.finish is not None:
                parts.append(self._detokenizer.finish())
                return self._last(event, parts, logprobs)
        return self._piece(parts, logprobs)

    def _last(self, event: TokenEvent, parts: list[str], logprobs: list[TokenLogprob]) -> Piece:
        if event.finish == "error":
            raise GenerationError(f"generation failed: {event.error}")
        if event.finish == "abort":
            raise ReplicaLost
        stop = event.stop_token
        if self._detokenizer.stopped is not None:
            return self._piece(parts, logprobs, "stop", self._detokenizer.stopped)
        return self._piece(parts, logprobs, event.finish, None if stop in self._eos_ids else stop)

    def _piece(
        self,
        parts: list[str],
        logprobs: list[TokenLogprob],
        finish: str | None = None,
        stop_reason: str | int | None = None,
    ) -> Piece:
        text = "".join(parts)
        self._text.append(text)
        return Piece(self.job.index, text, tuple(logprobs), finish, stop_reason)

    def _note(self, event: TokenEvent) -> None:
        if event.stats is not None:
            self.tally.stats = event.stats
        if event.token_ids:
            now = time.perf_counter()
            self._meter.tokens(self.tally, len(event.token_ids), now)
            self.tally.first_token = self.tally.first_token or now
            self.tally.last_token = now

    async def _settle(self, stream: TokenStream) -> None:
        """Have the replica's account: after a stop string it must be told, and answers a step later."""
        if self.tally.stats is None:
            stream.abort()
            try:
                async with asyncio.timeout(STATS_WAIT_S):
                    while self.tally.stats is None:
                        self._account(await stream.take())
            except (TimeoutError, RemoteError, ReplicaLost):
                return  # the text is complete; only the account of this request is lost
        self.tally.cached_tokens = self.tally.stats.cached_tokens if self.tally.stats else 0

    def _account(self, events: list[TokenEvent]) -> None:
        for event in events:
            if event.finish is not None:
                self.tally.stats = event.stats or RequestStats(
                    self.tally.prompt_tokens, 0, 0, 0, 0.0, 0.0, 0.0
                )

    def _finish(self, reason: str, error: str | None) -> None:
        """Once only: complete the record and the metrics."""
        if self._entry.end(reason, error, self.tally, "".join(self._text)):
            self._meter.finished(self.tally, reason)


async def start_all(generations: list[Generation]) -> None:
    """Start them together; if one is refused all are closed and the first refusal is raised."""
    try:
        outcomes = await asyncio.gather(*(item.start() for item in generations), return_exceptions=True)
        failure = next((item for item in outcomes if isinstance(item, BaseException)), None)
        if failure is not None:
            raise failure
    except BaseException:  # a client that leaves cancels this
        for generation in generations:
            generation.close()
        raise


async def merged(generations: list[Generation]) -> AsyncGenerator[Piece, None]:
    """The pieces of all, in order of arrival; all are closed at the end, however it comes."""
    try:
        if len(generations) == 1:
            async for piece in generations[0].pieces():
                yield piece
            return
        async for piece in _interleaved(generations):
            yield piece
    finally:
        for generation in generations:
            generation.close()


async def _interleaved(generations: list[Generation]) -> AsyncIterator[Piece]:
    arrived: asyncio.Queue[Piece | Exception] = asyncio.Queue()

    async def pump(generation: Generation) -> None:
        try:
            async for piece in generation.pieces():
                arrived.put_nowait(piece)
        except Exception as error:  # handed over to the reader, who raises it
            arrived.put_nowait(error)

    tasks = [asyncio.create_task(pump(generation)) for generation in generations]
    try:
        unfinished = len(generations)
        while unfinished:
            item = await arrived.get()
            if isinstance(item, Exception):
                raise item
            unfinished -= item.finish is not None
            yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
