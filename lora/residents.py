"""Which adapters hold a slot, which wait for one, and who gives way: plain bookkeeping without waiting.

State of an entry:

    fetching -> waiting -> installing -> ready -> evicting -> gone, or back in line if asked for meanwhile

An entry takes one of the slots from `installing` to the end of `evicting`. A pin counts one request; only
`ready` entries have pins. Who evicts: a ready entry without pins, least recently used first. If there is
none, waiting makes one: for every full `patience_s` that an entry has waited, one ready adapter more (the one
with the fewest pins) is closed, that is, requests for it queue up behind instead of adding pins, so that its
running requests come to an end.
"""

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.adapter_weights import AdapterWeights
from engine.errors import IntegrityError

State = Literal["fetching", "waiting", "installing", "ready", "evicting"]
_IN_SLOT = ("installing", "ready", "evicting")


@dataclass(slots=True, eq=False)
class Entry:
    """One adapter that is, or is about to be, in a slot.

    `order` and `since` (seconds) tell when the oldest of `waiters` came. `unloads` are calls that wait for
    the entry to go. `in_use` marks an entry that the engine would not give up just now.
    """

    digest: str
    force: bool
    order: int
    since: float
    state: State = "fetching"
    pins: int = 0
    closed: bool = False
    in_use: bool = False
    used: int = 0
    slot: int | None = None
    device_bytes: int = 0
    weights: AdapterWeights | None = None
    waiters: "list[asyncio.Future[Pin]]" = field(default_factory=list)
    unloads: "list[asyncio.Future[int]]" = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """In a slot and free to leave it."""
        return self.state == "ready" and self.pins == 0 and not self.in_use

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
    """Holds one adapter in its slot for one request, until it is given to Residency.release()."""

    __slots__ = ("entry", "released")

    def __init__(self, entry: Entry) -> None:
        self.entry, self.released = entry, False

    @property
    def digest(self) -> str:
        """The adapter that is held."""
        return self.entry.digest

    @property
    def slot(self) -> int | None:
        """Where it is."""
        return self.entry.slot


class Residents:
    """The entries by digest, and every choice between them."""

    def __init__(self, num_slots: int, patience_s: float) -> None:
        self._num_slots, self._patience_s = num_slots, patience_s
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

    def pin(self, entry: Entry) -> Pin:
        """One request more uses the entry."""
        entry.pins += 1
        return Pin(entry)

    def admit(self, entry: Entry) -> None:
        """Pin the entry for every request that still waits for it."""
        for waiter in entry.waiters:
            if not waiter.done():
                waiter.set_result(self.pin(entry))
        entry.waiters.clear()

    def unpin(self, pin: Pin) -> None:
        """One request less; the entry counts as just used."""
        pin.released = True
        pin.entry.pins -= 1
        pin.entry.used = next(self._uses)

    def line(self) -> list[Entry]:
        """Entries that need a slot and have their weights, first come first."""
        waiting = [entry for entry in self._entries.values() if entry.state == "waiting"]
        return sorted(waiting, key=lambda entry: entry.order)

    def take_slot(self) -> int:
        """The lowest number that no entry has."""
        taken = {entry.slot for entry in self._entries.values()}
        return min(set(range(1, self._num_slots + 1)) - taken)

    def free_slots(self) -> int:
        """Slots that no entry takes."""
        return self._num_slots - sum(entry.state in _IN_SLOT for entry in self._entries.values())

    def leaving(self) -> int:
        """Slots that are being emptied."""
        return sum(entry.state == "evicting" for entry in self._entries.values())

    def victim(self) -> Entry | None:
        """The idle entry that was used least recently."""
        idle = [entry for entry in self._entries.values() if entry.idle]
        return min(idle, key=lambda entry: entry.used, default=None)

    def set_closed(self, now: float) -> None:
        """Close as many ready entries as the patience of the line asks for; open the others."""
        turns = sum(int((now - entry.since) / self._patience_s) for entry in self.line())
        wanted = turns - self.leaving()
        ready = [entry for entry in self._entries.values() if entry.state == "ready"]
        ready.sort(key=lambda entry: (not entry.closed, entry.pins, entry.used))
        for rank, entry in enumerate(ready):
            entry.closed = rank < wanted

    def next_deadline(self, now: float) -> float | None:
        """Seconds until the patience of somebody in line runs out once more; None without a line."""
        waits = [self._patience_s - (now - entry.since) % self._patience_s for entry in self.line()]
        return min(waits, default=None)

    def check_integrity(self) -> None:
        """Raise IntegrityError unless slots, pins and queues agree."""
        if self.free_slots() < 0:
            raise IntegrityError(
                f"{self._num_slots - self.free_slots()} slots are taken of {self._num_slots}"
            )
        for entry in self._entries.values():
            _check_entry(entry)
        slots = [entry.slot for entry in self._entries.values() if entry.slot is not None]
        if len(slots) != len(set(slots)):
            raise IntegrityError(f"one slot has two adapters: {sorted(slots)}")


def _refuse(futures: Iterable["asyncio.Future[Any]"], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)


def _check_entry(entry: Entry) -> None:
    name = f"adapter {entry.digest} ({entry.state})"
    if entry.pins < 0 or (entry.pins and entry.state != "ready"):
        raise IntegrityError(f"{name} has {entry.pins} pins")
    if (entry.slot is not None) != (entry.state in ("ready", "evicting")):
        raise IntegrityError(f"{name} has slot {entry.slot}")
    if (entry.weights is not None) != (entry.state in ("waiting", "installing")):
        raise IntegrityError(f"{name} {'holds' if entry.weights else 'lacks'} its weights")
    if entry.state == "ready" and entry.waiters and not entry.closed:
        raise IntegrityError(f"{name} is open and keeps {len(entry.waiters)} requests waiting")
    if entry.state == "waiting" and not entry.waiters:
        raise IntegrityError(f"{name} waits for a slot for nobody")
