"""What moves adapters between disk, memory and engine, as the books in lora.residents allow it.

Fetching, reading and preparing run on threads that give way to every other; all else on one event loop.
Knows nobody who waits, but for the futures in the entries.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine

from engine.errors import AdapterInUse, UnknownAdapter
from engine.ports import PreparedAdapter
from lora.background import BackgroundThreads
from lora.errors import AdapterOverBudget, ResidencyClosed
from lora.ports import AdapterEngine, Fit, Source
from lora.residents import Entry, Residents

_RETRY_S = 0.02
_FETCHES = 4

logger = logging.getLogger(__name__)


class Moves:
    """Every move of one engine's adapters. A failed one belongs to those who asked for that adapter."""

    def __init__(self, engine: AdapterEngine, source: Source, residents: Residents) -> None:
        self._engine, self._source, self._residents = engine, source, residents
        self._fetching = BackgroundThreads(_FETCHES, "adapter-fetch")
        # One: what is read stands in memory twice while it is prepared.
        self._preparing = BackgroundThreads(1, "adapter-prepare")
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.closed = False

    def bring(self, entry: Entry) -> None:
        """Begin to fetch an entry; the rest follows."""
        self._start(self._fetch(entry))

    def advance(self) -> None:
        """Start whatever can happen now. Called after every change; itself never waits."""
        if self.closed:
            return
        now = time.monotonic()
        self._thin_line()
        self._retire()
        self._fill()
        self._residents.set_closed(now)
        for entry in self._residents:
            if entry.state == "ready" and not entry.closed:
                self._residents.admit(entry)
        self._arm_timer(now)

    async def close(self) -> None:
        """Move nothing more. What the engine has stays there."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        for entry in self._residents:
            entry.refuse_waiters(ResidencyClosed())
            entry.refuse_unloads(ResidencyClosed())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fetching.close()
        self._preparing.close()

    def _thin_line(self) -> None:
        """Who waits for what can never be, or for what nobody wants any more, leaves the line."""
        allowed = self._residents.unpinned_budget()
        for entry in self._residents.line():
            if entry.nbytes > allowed:
                self._drop(entry, AdapterOverBudget(entry.digest, entry.nbytes, allowed))
            elif not entry.waiters and (entry.unloads or not entry.ahead):
                self._drop(entry)

    def _retire(self) -> None:
        for entry in self._residents:
            if entry.unloads and entry.idle and not entry.waiters:
                self._evict(entry)

    def _fill(self) -> None:
        """Give memory to the first in line while there is any, and make room for the others."""
        room = self._residents.room()
        free, coming, idle, needed = room.free, room.free + room.leaving, room.idle, 0
        for entry in self._residents.line():
            if not needed and entry.nbytes <= free:
                free, coming = free - entry.nbytes, coming - entry.nbytes
                entry.state = "preparing"
                self._start(self._prepare(entry))
                continue
            if not entry.waiters and needed + entry.nbytes > coming + idle:
                self._drop(entry)
                continue
            needed += entry.nbytes
            while needed > coming and idle > 0:
                victim = self._residents.victim()
                coming, idle = coming + victim.nbytes, idle - victim.nbytes
                self._evict(victim)

    def _arm_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._residents.next_deadline(now)
        self._timer = None if deadline is None else self._later(deadline, self.advance)

    def _later(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, action)

    async def _fetch(self, entry: Entry) -> None:
        started = time.monotonic()
        try:
            fitted = await self._fetching.run(lambda: self._source.fit(entry.digest, force=entry.force))
        except Exception as error:  # whatever it is, it belongs to those who asked for this adapter
            self._drop(entry, error)
        else:
            entry.state, entry.fitted, entry.nbytes = "waiting", fitted, fitted.nbytes
            entry.fetch_seconds = time.monotonic() - started
        self.advance()

    async def _prepare(self, entry: Entry) -> None:
        assert entry.fitted is not None, "an entry with memory keeps what it is read from"
        fitted, started = entry.fitted, time.monotonic()
        try:
            prepared = await self._preparing.run(lambda: self._read(fitted))
            entry.nbytes = prepared.nbytes
            if self._residents.room().free < 0:  # larger than it was thought: first in line once more
                entry.state = "waiting"
            else:
                await self._engine.add_adapter(prepared)
                entry.state, entry.fitted = "ready", None
                entry.load_seconds = entry.fetch_seconds + time.monotonic() - started
                self._residents.admit(entry)  # before anybody in line may have its memory
        except Exception as error:  # as above: one adapter's failure is nobody else's
            self._drop(entry, error)
        self.advance()

    def _read(self, fitted: Fit) -> PreparedAdapter:
        return self._engine.prepare_adapter(fitted.read())

    def _evict(self, entry: Entry) -> None:
        entry.state = "leaving"
        self._start(self._remove(entry))

    async def _remove(self, entry: Entry) -> None:
        try:
            freed = await self._engine.remove_adapter(entry.digest)
        except AdapterInUse:
            self._keep(entry)
        except UnknownAdapter:
            self._gone(entry, 0)
        except Exception as error:  # the memory stays taken; those who wanted it hear why
            self._keep(entry)
            entry.refuse_unloads(error)
            for head in self._residents.line()[:1]:
                self._drop(head, error)
        else:
            self._gone(entry, freed)
        self.advance()

    def _keep(self, entry: Entry) -> None:
        """The engine does not give it up; ask again a little later."""
        entry.state, entry.in_use = "ready", True
        self._later(_RETRY_S, lambda: self._ask_again(entry))

    def _ask_again(self, entry: Entry) -> None:
        entry.in_use = False
        self.advance()

    def _gone(self, entry: Entry, freed: int) -> None:
        """Its memory is free. Who asked for the adapter meanwhile gets it anew."""
        entry.answer_unloads(freed)
        if entry.waiters:
            entry.begin_again()
            self.bring(entry)
        else:
            self._residents.remove(entry)

    def _drop(self, entry: Entry, error: Exception | None = None) -> None:
        """Forget an entry that has no memory."""
        self._residents.remove(entry)
        entry.answer_unloads(0)
        if error is not None:
            entry.refuse_waiters(error)
            if entry.ahead:
                told = {"action": "prefetch_failed", "digest": entry.digest}
                logger.warning("adapter not loaded ahead: %s", error, extra=told)

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
