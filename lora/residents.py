"""Which adapters are in memory, which wait for it, and who gives way: plain bookkeeping without waiting.

State of an entry:

    fetching -> waiting -> preparing -> ready -> leaving -> gone, or anew if asked for meanwhile

From `preparing` to the end of `leaving` an entry's bytes count against the budget. A hold counts one request;
only `ready` entries have holds. Who gives way: a ready entry without holds that no admin has pinned, least
recently used first. If there is none, waiting makes one, see set_closed.
"""

import asyncio
import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.errors import IntegrityError
from lora.errors import PinsFillBudget
from lora.ports import Fit

State = Literal["fetching", "waiting", "preparing", "ready", "leaving"]
_IN_MEMORY = ("preparing", "ready", "leaving")


@dataclass(slots=True, eq=False)
class Entry:
    """One adapter that is, or is about to be, in memory.

    order and since (seconds) tell when the oldest of `waiters` came. nbytes: a close guess until it is
    prepared. ahead: wanted by nobody yet. unloads: calls that wait for the entry to go. in_use: the engine
    would not give it up just now. last_use: unix seconds, `uses` its order.
    """

    digest: str
    force: bool
    order: int
    since: float
    ahead: bool = False
    state: State = "fetching"
    fitted: Fit | None = None
    nbytes: int = 0
    pins: int = 0
    pinned: bool = False
    closed: bool = False
    in_use: bool = False
    uses: int = 0
    last_use: float | None = None
    fetch_seconds: float = 0.0
    load_seconds: float | None = None
    waiters: "list[asyncio.Future[Pin]]" = field(default_factory=list)
    unloads: "list[asyncio.Future[int]]" = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """In memory and free to leave it."""
        return self.state == "ready" and self.pins == 0 and not self.in_use and not self.pinned

    def begin_again(self) -> None:
        """Its memory is gone and it is wanted: as when it was new, in its old place in line."""
        self.state, self.nbytes, self.closed = "fetching", 0, False

    def refuse_waiters(self, error: Exception) -> None:
        """Every request that waits for the entry gets the error."""
        _refuse(self.waiters, error)
        self.waiters.clear()

    def refuse_unloads(self, error: Exception) -> None:
        """Every unload that waits for the entry gets the error."""
        _refuse(self.unloads, error)
        self.unloads.clear()

    def answer_unloads(self, freed: int) -> None:
        """The first call reports the bytes, the others none: they are freed once."""
        for gone in self.unloads:
            if not gone.done():
                gone.set_result(freed)
                freed = 0
        self.unloads.clear()


class Pin:
    """Holds one adapter in memory for one request, until it is given to Residency.release()."""

    __slots__ = ("entry", "released")

    def __init__(self, entry: Entry) -> None:
        self.entry, self.released = entry, False

    @property
    def digest(self) -> str:
        """The adapter that is held."""
        return self.entry.digest

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        return self.entry.nbytes


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes. free: that nobody takes. leaving: that are being freed. idle: that could be."""

    free: int
    leaving: int
    idle: int


class Residents:
    """The entries by digest, and every choice between them. Sizes in bytes."""

    def __init__(self, budget: int, patience_s: float) -> None:
        self._budget, self._patience_s = budget, patience_s
        self._entries: dict[str, Entry] = {}
        self._orders, self._uses = itertools.count(), itertools.count(1)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def get(self, digest: str) -> Entry | None:
        """The entry of a digest, if there is one."""
        return self._entries.get(digest)

    def add(self, digest: str, force: bool, now: float) -> Entry:
        """A new entry, last in line."""
        entry = self._entries[digest] = Entry(digest, force, next(self._orders), now)
        return entry

    def remove(self, entry: Entry) -> None:
        """Forget an entry."""
        del self._entries[entry.digest]

    def queue(self, entry: Entry, waiter: "asyncio.Future[Pin]", now: float) -> None:
        """A request waits for the entry; the first one sets its place in line."""
        if not entry.waiters:
            entry.order, entry.since = next(self._orders), now
        entry.waiters.append(waiter)

    def hold(self, entry: Entry) -> Pin:
        """One request more uses the entry."""
        entry.pins += 1
        self._touch(entry)
        return Pin(entry)

    def admit(self, entry: Entry) -> None:
        """Hold the entry for every request that still waits for it."""
        for waiter in entry.waiters:
            if not waiter.done():
                waiter.set_result(self.hold(entry))
        entry.waiters.clear()

    def let_go(self, pin: Pin) -> None:
        """One request less; the entry counts as just used."""
        pin.released = True
        pin.entry.pins -= 1
        self._touch(pin.entry)

    def pin(self, entry: Entry) -> None:
        """Keep the entry, whoever waits for it to go.

        Raises PinsFillBudget where no other of its size would fit beside.
        """
        left = self.unpinned_budget()
        if not entry.pinned and 2 * entry.nbytes > left:
            raise PinsFillBudget(entry.digest, entry.nbytes, self._budget - left, self._budget)
        entry.pinned, entry.closed = True, False
        entry.answer_unloads(0)

    def unpinned_budget(self) -> int:
        """What pinned entries leave of the budget: more than that no other can ever have."""
        return self._budget - sum(entry.nbytes for entry in self._entries.values() if entry.pinned)

    def room(self) -> Room:
        """How the budget stands now."""
        taken = [entry for entry in self._entries.values() if entry.state in _IN_MEMORY]
        return Room(
            self._budget - sum(entry.nbytes for entry in taken),
            sum(entry.nbytes for entry in taken if entry.state == "leaving"),
            sum(entry.nbytes for entry in taken if entry.idle),
        )

    def line(self) -> list[Entry]:
        """Entries that need memory, first come first; those that nobody asked for yet at its end."""
        waiting = [entry for entry in self._entries.values() if entry.state == "waiting"]
        return sorted(waiting, key=lambda entry: (not entry.waiters, entry.order))

    def victim(self) -> Entry:
        """The idle entry that was used least recently; there must be one."""
        return min((entry for entry in self._entries.values() if entry.idle), key=lambda entry: entry.uses)

    def set_closed(self, now: float) -> None:
        """Close what must give way to those whose patience is out; open the rest.

        A closed entry takes no more holds: requests for it queue behind, and those that it has come to an
        end. Those with the fewest holds are closed, as many as make the room that is short, and one more
        for every further `patience_s` that the first in line has waited.
        """
        overdue = [e for e in self.line() if e.waiters and now - e.since >= self._patience_s]
        room = self.room()
        short = sum(entry.nbytes for entry in overdue) - room.free - room.leaving
        further = int((now - overdue[0].since) / self._patience_s) - 1 if overdue and short > 0 else 0
        ready = [e for e in self._entries.values() if e.state == "ready" and not e.pinned]
        for entry in sorted(ready, key=lambda entry: (not entry.closed, entry.pins, entry.uses)):
            entry.closed = short > 0 or further > 0
            if short > 0:
                short -= entry.nbytes
            else:
                further -= 1

    def next_deadline(self, now: float) -> float | None:
        """Seconds until the patience of somebody in line runs out once more; None without a line."""
        waits = [self._patience_s - (now - e.since) % self._patience_s for e in self.line() if e.waiters]
        return min(waits, default=None)

    def check_integrity(self) -> None:
        """Raise IntegrityError unless bytes, holds and queues agree."""
        if (free := self.room().free) < 0:
            raise IntegrityError(f"adapters take {self._budget - free} bytes, allowed: {self._budget}")
        for entry in self._entries.values():
            _check_entry(entry)

    def _touch(self, entry: Entry) -> None:
        entry.uses, entry.last_use = next(self._uses), time.time()


def _refuse(futures: Iterable["asyncio.Future[Any]"], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)


def _check_entry(entry: Entry) -> None:
    name = f"adapter {entry.digest} ({entry.state})"
    if entry.pins < 0 or (entry.pins and entry.state != "ready"):
        raise IntegrityError(f"{name} is held by {entry.pins} requests")
    if (entry.fitted is not None) != (entry.state in ("waiting", "preparing")):
        raise IntegrityError(f"{name} {'keeps' if entry.fitted else 'lacks'} what it is read from")
    if entry.pinned and (entry.state != "ready" or entry.closed):
        raise IntegrityError(f"{name} is pinned, and not ready for everybody")
    if entry.state == "ready" and entry.waiters and not entry.closed:
        raise IntegrityError(f"{name} is open and keeps {len(entry.waiters)} requests waiting")
    if entry.state == "waiting" and not entry.waiters and not entry.ahead:
        raise IntegrityError(f"{name} waits for memory for nobody")
