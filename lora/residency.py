"""Adapters of one replica: loaded on demand, pinned while requests run, put out of their slots when idle.

It drives an engine through two calls and a loader through two more; it knows no endpoints and no names, only
digests. Everything here runs on one event loop; reading weights runs on threads of its own.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor

from engine.adapter_weights import AdapterWeights
from engine.errors import AdapterInUse, UnknownAdapter
from lora.errors import ResidencyClosed
from lora.host_cache import HostCache
from lora.ports import ResidentAdapter, SlotEngine, WeightsLoader
from lora.residents import Entry, Pin, Residents
from lora.weights import weights_bytes

_RETRY_S = 0.02
_LOAD_THREADS = 2


class Residency:
    """Adapters in the slots of one engine.

    Fairness: a request whose adapter has no slot waits first come first. Once it has waited `patience_s`, the
    busy adapter with the fewest requests is closed: requests for it queue behind instead of joining it. So
    the wait is at most `patience_s` plus the time that the requests already running on that adapter take,
    for each place in line; every further `patience_s` closes one adapter more, so one endless stream cannot
    keep anybody waiting while another slot drains. Loading (fetch and install) comes on top.

    A load that fails reaches the requests that wait for it and nobody else, and is tried anew by the next.
    """

    def __init__(
        self,
        engine: SlotEngine,
        loader: WeightsLoader,
        *,
        num_slots: int,
        host_bytes: int = 1 << 30,
        patience_s: float = 2.0,
    ) -> None:
        self._engine, self._loader = engine, loader
        self._residents, self._host = Residents(num_slots, patience_s), HostCache(host_bytes)
        self._threads = ThreadPoolExecutor(_LOAD_THREADS, thread_name_prefix="adapter-load")
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def acquire(self, digest: str, *, force: bool = False) -> Pin:
        """Pin an adapter in a slot, loading it if needed. The caller owns the pin and releases it.

        Requests for one adapter share one load (and the `force` of the first of them). Cancelling is safe at
        any moment. Raises ResidencyClosed, and what the loader and the engine raise.
        """
        if self._closed:
            raise ResidencyClosed
        entry = self._residents.get(digest)
        if entry is not None and entry.state == "ready" and not entry.closed:
            return self._residents.pin(entry)
        now, waiter = time.monotonic(), asyncio.get_running_loop().create_future()
        if entry is None:
            entry = self._residents.add(digest, force, now)
            self._residents.queue(entry, waiter, now)
            self._fetch(entry)
        else:
            self._residents.queue(entry, waiter, now)
        return await self._wait(entry, waiter)

    async def _wait(self, entry: Entry, waiter: "asyncio.Future[Pin]") -> Pin:
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter in entry.waiters:
                entry.waiters.remove(waiter)
                self._advance()
            elif not waiter.cancelled() and waiter.exception() is None:
                self.release(waiter.result())
            raise

    def release(self, pin: Pin) -> None:
        """The request has ended. Releasing twice does nothing."""
        if not pin.released:
            self._residents.unpin(pin)
            self._advance()

    async def unload(self, digest: str) -> int:
        """Drop an adapter from slot, host memory and local disk; returns the bytes freed in memory.

        It waits until no request uses the adapter and holds up nobody meanwhile. Requests that still name it
        are served; whoever unloads stops naming it first. 0 if it was not resident. Raises ResidencyClosed.
        """
        if self._closed:
            raise ResidencyClosed
        freed = self._host.drop(digest)
        entry = self._residents.get(digest)
        if entry is not None:
            gone: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            entry.unloads.append(gone)
            self._advance()
            freed += await gone
        await asyncio.get_running_loop().run_in_executor(self._threads, self._loader.forget, digest)
        return freed

    def snapshot(self) -> list[ResidentAdapter]:
        """Every adapter that takes memory here, in slots first."""
        rows = [
            ResidentAdapter(
                entry.digest,
                entry.state,
                entry.slot,
                entry.pins,
                len(entry.waiters),
                entry.device_bytes,
                self._host.bytes_of(entry.digest),
            )
            for entry in self._residents
        ]
        listed = {row.digest for row in rows}
        return rows + [
            ResidentAdapter(digest, "host", None, 0, 0, 0, self._host.bytes_of(digest))
            for digest in self._host.digests()
            if digest not in listed
        ]

    def check_integrity(self) -> None:
        """Raise IntegrityError if slots, pins, queues or bytes disagree."""
        self._residents.check_integrity()
        self._host.check_integrity()

    async def close(self) -> None:
        """Refuse what waits and load nothing more. Adapters stay in the engine, which is closing too."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for entry in self._residents:
            entry.refuse_waiters(ResidencyClosed())
            entry.refuse_unloads(ResidencyClosed())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _advance(self) -> None:
        """Start whatever can happen now. Called after every change; itself never waits."""
        if self._closed:
            return
        now = time.monotonic()
        self._drop_abandoned()
        self._retire()
        self._fill_slots()
        self._residents.set_closed(now)
        self._admit()
        self._arm_timer(now)

    def _drop_abandoned(self) -> None:
        for entry in self._residents.line():
            if not entry.waiters:
                self._remove(entry, 0)

    def _retire(self) -> None:
        for entry in self._residents:
            if entry.unloads and entry.idle and not entry.waiters:
                self._evict(entry)

    def _fill_slots(self) -> None:
        line = self._residents.line()
        for entry in line[: self._residents.free_slots()]:
            assert entry.weights is not None, "an entry in line holds its weights"
            entry.state = "installing"
            self._start(self._install(entry, entry.weights))
        short = len(self._residents.line()) - self._residents.leaving()
        while short > 0 and (victim := self._residents.victim()) is not None:
            self._evict(victim)
            short -= 1

    def _admit(self) -> None:
        for entry in self._residents:
            if entry.state == "ready" and not entry.closed:
                self._residents.admit(entry)

    def _arm_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay = self._residents.next_deadline(now)
        self._timer = None if delay is None else self._later(delay, self._advance)

    def _later(self, delay: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay, call)

    def _fetch(self, entry: Entry) -> None:
        """Get the weights: from host memory at once, else by a thread."""
        weights = self._host.get(entry.digest)
        if weights is None:
            entry.state = "fetching"
            self._start(self._load(entry))
        else:
            entry.state, entry.weights = "waiting", weights
            self._advance()

    async def _load(self, entry: Entry) -> None:
        loop = asyncio.get_running_loop()
        try:
            weights = await loop.run_in_executor(
                self._threads, lambda: self._loader.load(entry.digest, force=entry.force)
            )
        except Exception as error:  # whatever it is, it belongs to those who asked for this adapter
            self._remove(entry, 0, error)
        else:
            self._host.put(weights)
            entry.state, entry.weights = "waiting", weights
        self._advance()

    async def _install(self, entry: Entry, weights: AdapterWeights) -> None:
        try:
            prepared = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._engine.prepare_adapter, weights
            )
            await self._engine.add_adapter(prepared)
        except Exception as error:  # as above: one adapter's failure is nobody else's
            self._remove(entry, 0, error)
        else:
            entry.slot = self._residents.take_slot()
            entry.state, entry.weights, entry.device_bytes = "ready", None, weights_bytes(weights)
            self._residents.admit(entry)  # before anybody else in line may have the slot
        self._advance()

    def _evict(self, entry: Entry) -> None:
        entry.state = "evicting"
        self._start(self._empty_slot(entry))

    async def _empty_slot(self, entry: Entry) -> None:
        try:
            freed = await self._engine.remove_adapter(entry.digest)
        except AdapterInUse:
            self._keep(entry)
        except UnknownAdapter:
            self._leave(entry, 0)
        except Exception as error:  # the slot stays taken; those who wanted it hear why
            self._keep(entry)
            entry.refuse_unloads(error)
            for head in self._residents.line()[:1]:
                self._remove(head, 0, error)
        else:
            self._leave(entry, freed)
        self._advance()

    def _keep(self, entry: Entry) -> None:
        """The engine does not give the slot up; ask again a little later."""
        entry.state, entry.in_use = "ready", True
        self._later(_RETRY_S, lambda: self._ask_again(entry))

    def _ask_again(self, entry: Entry) -> None:
        entry.in_use = False
        self._advance()

    def _leave(self, entry: Entry, freed: int) -> None:
        """The slot is empty. Whoever asked for the adapter meanwhile stands in line with it."""
        entry.slot, entry.device_bytes, entry.closed = None, 0, False
        self._settle_unloads(entry, freed)
        if entry.waiters:
            self._fetch(entry)
        else:
            self._residents.remove(entry)

    def _remove(self, entry: Entry, freed: int, error: Exception | None = None) -> None:
        self._residents.remove(entry)
        self._settle_unloads(entry, freed)
        if error is not None:
            entry.refuse_waiters(error)

    def _settle_unloads(self, entry: Entry, freed: int) -> None:
        if entry.unloads:
            entry.answer_unloads(freed + self._host.drop(entry.digest))

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
