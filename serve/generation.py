"""One prompt under way: the token events of all its choices, sorted into one reader each.

Who frees what: a Generation that was started must be closed; closing one that has not finished aborts it on
the replica. The records of its choices begin before the replica is asked, and each ends before the last piece
of its choice is handed out, so no answer reaches a client that the spool does not hold. Knows no HTTP.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from engine.records import Request, TokenEvent
from serve.choice import Choice, Piece, Reading, Tally
from serve.errors import GenerationError, RemoteError, ReplicaLost
from serve.link import ReplicaLink, TokenStream
from serve.metrics import Meter
from serve.record.keeper import Entry

SETTLE_S = 10.0
"""How long choices whose texts are whole wait for the engine's account of them."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is wanted of one prompt; its choices are those of the whole answer from `first` on.

    force: its adapter was accepted although it was trained on another base model.
    """

    first: int
    request: Request
    reading: Reading
    force: bool = False


class Generation:
    """All choices of one prompt on one replica. entries: the record of each choice, in order."""

    def __init__(self, job: Job, link: ReplicaLink, entries: Sequence[Entry], meter: Meter) -> None:
        self.job = job
        self._link = link
        self._stream: TokenStream | None = None
        prompt_tokens = len(job.request.prompt)
        self._choices = [
            Choice(job.first + place, job.reading, prompt_tokens, entry, meter)
            for place, entry in enumerate(entries)
        ]
        self._open = len(self._choices)
        """Of them, those whose last piece has not been made; in `_reading`, those whose text is not whole."""
        self._reading = self._open
        self._tells_of_prompt = job.request.sampling.prompt_logprobs is not None

    @property
    def tallies(self) -> list[Tally]:
        """Figures of its choices, in order."""
        return [choice.tally for choice in self._choices]

    async def start(self) -> None:
        """Return once the replica has taken the request. Raises RemoteError (its refusal) or ReplicaLost."""
        for choice in self._choices:
            choice.begin()
        try:
            self._stream = self._link.open(self.job.request, force=self.job.force)
            await self._stream.accepted()
        except (RemoteError, ReplicaLost) as error:
            self._fail(error)
            raise

    async def pieces(self) -> AsyncIterator[Piece]:
        """Text as it comes, the last piece of a choice with the reason.

        Raises GenerationError or ReplicaLost.
        """
        assert self._stream is not None, "start() comes first"
        while self._open:
            try:
                taking = self._stream.take() if self._reading else _account(self._stream)
                for piece in self._sorted(await taking, self._stream):
                    yield piece
            except (TimeoutError, ReplicaLost) as error:
                for choice in self._choices:
                    if choice.is_settling:  # its text is whole; only the account of it is lost
                        self._open -= 1
                        yield choice.settle()
                if self._open:
                    self._fail(error)
                    raise
            except (GenerationError, RemoteError) as error:
                self._fail(error)
                raise

    def close(self) -> None:
        """Free the replica of the request; what was not finished counts as aborted by its client."""
        if self._stream is not None:
            self._stream.close()
        for choice in self._choices:
            choice.end("abort", None)

    def _sorted(self, events: list[TokenEvent], stream: TokenStream) -> Iterator[Piece]:
        """One piece of each choice that has any. What a stop string has ended is stopped on the replica."""
        if self._tells_of_prompt:
            self._tell_of_prompt(events)
        for choice, own in self._by_choice(events):
            if choice.ended:  # without the account that comes now
                continue
            was_settling = choice.is_settling
            piece = choice.read(own)
            if piece is None:
                if not was_settling:
                    self._reading -= 1
                    stream.abort(choice.index - self.job.first)
                continue
            if piece.finish is not None:
                self._open -= 1
                self._reading -= not was_settling
            yield piece

    def _tell_of_prompt(self, events: list[TokenEvent]) -> None:
        """The engine tells it once, before any other choice has come to anything."""
        for event in events:
            if event.prompt_logprobs is not None:
                for choice in self._choices:
                    choice.prompt_logprobs = event.prompt_logprobs

    def _by_choice(self, events: list[TokenEvent]) -> Iterator[tuple[Choice, list[TokenEvent]]]:
        if len(self._choices) == 1:
            return iter([(self._choices[0], events)])
        gathered: dict[int, list[TokenEvent]] = {}
        for event in events:
            gathered.setdefault(event.index, []).append(event)
        return ((self._choices[index], own) for index, own in gathered.items())

    def _fail(self, error: Exception) -> None:
        for choice in self._choices:
            choice.end("error", str(error))


async def _account(stream: TokenStream) -> list[TokenEvent]:
    """What comes where nothing but accounts is missing. Raises TimeoutError after SETTLE_S."""
    async with asyncio.timeout(SETTLE_S):
        return await stream.take()


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
    arrived: asyncio.Queue[Piece | Exception | None] = asyncio.Queue()

    async def pump(generation: Generation) -> None:
        try:
            async for piece in generation.pieces():
                arrived.put_nowait(piece)
            arrived.put_nowait(None)
        except Exception as error:  # handed over to the reader, who raises it
            arrived.put_nowait(error)

    tasks = [asyncio.create_task(pump(generation)) for generation in generations]
    try:
        unfinished = len(generations)
        while unfinished:
            item = await arrived.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                unfinished -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
