"""Adapters of one replica: fetched and prepared on demand, held while requests run, dropped when idle.

It decides which adapters are in memory; which of them have a slot is the engine's. It knows no endpoints and
no names, only digests. Everything here runs on one event loop.
"""

import asyncio
import time
from collections.abc import Mapping

from lora.errors import ResidencyClosed
from lora.moves import Moves
from lora.ports import AdapterEngine, Bound, ResidentAdapter, Source
from lora.residents import Entry, Pin, Residents


class Residency:
    """Adapters in the memory of one engine.

    Fairness: a request whose adapter finds no memory waits first come first. Once it has waited `patience_s`,
    busy adapters are closed, those with the fewest requests first, until there will be room: requests for
    them queue behind instead of joining. So the wait is at most `patience_s` plus the time that the requests
    already running on those adapters take, for each place in line; every further `patience_s` closes one
    adapter more, so one endless stream cannot keep anybody waiting while another adapter drains. Fetching
    and preparing come on top. Who waits holds nothing but its place and a copy on the local disk.

    A failure reaches the requests that wait for that adapter and nobody else; the next one tries anew.
    """

    def __init__(
        self, engine: AdapterEngine, source: Source, *, budget: int, patience_s: float = 2.0
    ) -> None:
        """budget: bytes of all adapters in memory together."""
        self._engine, self._source = engine, source
        self._residents = Residents(budget, patience_s)
        self._moves = Moves(engine, source, self._residents)

    async def acquire(self, digest: str, *, force: bool = False, stay: bool = False) -> Pin:
        """Hold an adapter in memory, loading it if needed. The caller owns the pin and releases it.

        Requests for one adapter share one load (and the `force` of the first of them). Cancelling is safe at
        any moment. `stay` calls off unloads that wait for the adapter, which then return 0.
        Raises ResidencyClosed, AdapterOverBudget, and what the source and the engine raise.
        """
        entry = self._entry(digest, force)
        if stay:
            entry.answer_unloads(0)
        if entry.state == "ready" and not entry.closed:
            return self._residents.hold(entry)
        waiter: asyncio.Future[Pin] = asyncio.get_running_loop().create_future()
        self._residents.queue(entry, waiter, time.monotonic())
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter in entry.waiters:
                entry.waiters.remove(waiter)
                self._moves.advance()
            elif not waiter.cancelled() and waiter.exception() is None:
                self.release(waiter.result())
            raise

    def release(self, pin: Pin) -> None:
        """The request has ended. Releasing twice does nothing."""
        if not pin.released:
            self._residents.let_go(pin)
            self._moves.advance()

    def prefetch(self, digest: str, *, force: bool = False) -> None:
        """Have an adapter ready before somebody asks for it, as far as idle ones make room for it.

        Where they do not it stays on the local disk. A failure is logged, and told to nobody.
        """
        if not self._moves.closed and self._residents.get(digest) is None:
            self._entry(digest, force).ahead = True

    async def pin(self, digest: str, *, force: bool = False) -> None:
        """Load an adapter and keep it until unpin() or unload(), whether it is used or not.

        Raises PinsFillBudget, and what acquire() raises.
        """
        held = await self.acquire(digest, force=force, stay=True)
        try:
            self._residents.pin(held.entry)
        finally:
            self.release(held)

    def unpin(self, digest: str) -> None:
        """Let an adapter go like any other; nothing changes where it is not pinned."""
        if (entry := self._residents.get(digest)) is not None:
            entry.pinned = False
            self._moves.advance()

    async def unload(self, digest: str) -> int:
        """Drop an adapter from memory and local disk; returns the bytes freed in memory.

        It waits until no request uses the adapter and holds up nobody meanwhile. Requests that still name it
        are served; whoever unloads stops naming it first. 0 if it was not in memory, or if acquire() wanted
        it to stay. Raises ResidencyClosed, and what the engine raises.
        """
        if self._moves.closed:
            raise ResidencyClosed
        freed, entry = 0, self._residents.get(digest)
        if entry is not None:
            gone: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            entry.unloads.append(gone)
            entry.pinned = False
            self._moves.advance()
            freed = await gone
        if self._residents.get(digest) is None:
            await asyncio.to_thread(self._source.forget, digest)
        return freed

    def row(self, digest: str) -> ResidentAdapter | None:
        """The line of one adapter, None where it is neither in memory nor on its way there."""
        entry = self._residents.get(digest)
        return None if entry is None else self._row(entry, self._engine.adapters())

    def snapshot(self) -> list[ResidentAdapter]:
        """Every adapter that is in memory or on its way there."""
        bound = self._engine.adapters()
        return [self._row(entry, bound) for entry in self._residents]

    async def listing(self) -> list[ResidentAdapter]:
        """The snapshot, and after it what lies on the local disk alone."""
        copies = await asyncio.to_thread(self._source.copies)
        rows = self.snapshot()
        here = {row.digest for row in rows}
        return rows + [
            ResidentAdapter(digest=digest, state="disk", bytes=copy.bytes, last_use=copy.used)
            for digest, copy in copies.items()
            if digest not in here
        ]

    def check_integrity(self) -> None:
        """Raise IntegrityError if bytes, holds or queues disagree."""
        self._residents.check_integrity()

    async def close(self) -> None:
        """Refuse what waits and load nothing more. Adapters stay in the engine, which is closing too."""
        await self._moves.close()

    def _row(self, entry: Entry, bound: Mapping[str, Bound]) -> ResidentAdapter:
        return ResidentAdapter(
            digest=entry.digest,
            state="draining" if entry.unloads or entry.state == "leaving" else entry.state,
            bytes=entry.nbytes,
            last_use=entry.last_use,
            slot=bound[entry.digest].slot if entry.digest in bound else None,
            pins=entry.pins,
            waiting=len(entry.waiters),
            pinned=entry.pinned,
            load_seconds=entry.load_seconds,
        )

    def _entry(self, digest: str, force: bool) -> Entry:
        """The entry of a digest, where it is new on its way. Raises ResidencyClosed."""
        if self._moves.closed:
            raise ResidencyClosed
        entry = self._residents.get(digest)
        if entry is None:
            entry = self._residents.add(digest, force, time.monotonic())
            self._moves.bring(entry)
        return entry
