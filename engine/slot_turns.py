"""Whose turn it is in the adapter slots, where more adapters are wanted than one step can have.

An adapter is wanted while a running sequence is to be computed with it, or a waiting one to begin with it.
While all that are wanted fit, each keeps its slot, nothing is parked and a step costs two set operations;
one that is wanted no more keeps its slot until another needs it, the longest idle one first.

Where they do not fit, those without a slot stand in line, first come first served. A slot passes to the
head of the line when its holder has had QUANTUM steps, or at once when the last step computed nothing for it
(its requests wait for blocks or places). Whoever gives up a slot and is still wanted goes to the end.

The bound: each of N slots passes at least once in QUANTUM steps while anybody stands in line. So whoever is
p-th in line, when its want is first seen, holds a slot after at most ceil(p / N) * QUANTUM steps, whatever
the others do: for W wanted adapters p is at most W - N. One slot, endless requests for A and one for B: B
holds the slot after QUANTUM steps at most, and every QUANTUM steps from then on.

Knows digests and steps; no sequences, no tensors. Seconds are only for its account.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from engine.adapters import AddedAdapters
from engine.errors import IntegrityError
from engine.records import SlotChange

QUANTUM = 2
"""Steps of a turn. Binding an adapter is a pointer on a CPU, so turns may be short, and who waits does not
wait for many steps, of which one that computes prompts takes long. Two let the end of a prompt and the token
after it fall into one turn."""

NO_ADAPTER = 0
"""The slot of rows that are the base model's."""


@dataclass(slots=True)
class SlotCounters:
    """Counted since the start. longest_steps, longest_s: that a wanted adapter has stood in line."""

    changes: int = 0
    longest_steps: int = 0
    longest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Since:
    step: int
    moment: float


class SlotTurns:
    """Slots 1 .. num_slots, and which adapter holds each.

    bound: slots by digest, those bound longest ago first. is_short: somebody stands in line.
    """

    def __init__(
        self,
        num_slots: int,
        added: AddedAdapters,
        counters: SlotCounters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bound: dict[str, int] = {}
        self.counters = counters
        self._num_slots = num_slots
        self._added = added
        self._clock = clock
        self._step = 0
        self._empty = list(range(num_slots, 0, -1))
        self._live: Counter[str] = Counter()
        self._idle: dict[str, None] = {}
        self._bound_at: dict[str, int] = {}
        self._line: dict[str, _Since] = {}
        self._unused: set[str] = set()
        self._changed: set[int] = set()

    @property
    def is_short(self) -> bool:
        return bool(self._line)

    def holds(self, digest: str | None) -> bool:
        """Whether what is computed with this adapter, or the base model, can be in the next step."""
        return digest is None or digest in self.bound

    def slot_of(self, digest: str | None) -> int:
        """The slot of an adapter that holds one; 0 for the base model."""
        return NO_ADAPTER if digest is None else self.bound[digest]

    def enter(self, digest: str | None) -> None:
        """A sequence has come that is, or will be, computed with the adapter."""
        if digest is not None:
            self._live[digest] += 1
            self._idle.pop(digest, None)

    def leave(self, digest: str | None) -> None:
        """The sequence has ended."""
        if digest is None:
            return
        self._live[digest] -= 1
        if not self._live[digest]:
            del self._live[digest]
            self._line.pop(digest, None)
            if digest in self.bound:
                self._idle[digest] = None

    def begin_step(self, wanted: Callable[[], Iterable[str]]) -> None:
        """Decide who holds a slot in this step. wanted: asked for only where somebody has none."""
        self._step += 1
        if self._line or not self._live.keys() <= self.bound.keys():
            self._share_out(dict.fromkeys(wanted()))

    def end_step(self, used: Iterable[str | None]) -> None:
        """The step computes something for these, or had no tokens left for them."""
        self._unused = self.bound.keys() - used if self._line else set()

    def take_changes(self) -> tuple[SlotChange, ...]:
        """What the runner has not been told of yet, to be done before it computes."""
        holders = {slot: digest for digest, slot in self.bound.items() if slot in self._changed}
        changes = tuple(
            SlotChange(slot, self._added.get(holders[slot]) if slot in holders else None)
            for slot in sorted(self._changed)
        )
        self._changed.clear()
        return changes

    def distrust(self) -> None:
        """The step failed: what the runner's slots hold is not known, and it is told anew of all."""
        self._changed.update(range(1, self._num_slots + 1))

    def vacate(self, digest: str) -> None:
        """No sequence is computed with the adapter any more, and it may not keep a slot."""
        if digest in self.bound:
            self._empty.append(self._unbind(digest))

    def _share_out(self, wanted: Mapping[str, None]) -> None:
        now = _Since(self._step, self._clock())
        self._line = {digest: since for digest, since in self._line.items() if digest in wanted}
        for digest in wanted:
            if digest not in self.bound:
                self._line.setdefault(digest, now)
        for digest in list(self._line):
            slot = self._next_slot(wanted, now)
            if slot is None:
                break
            self._take(digest, slot, now)
        for since in self._line.values():
            self._account(since, now)
            break

    def _take(self, digest: str, slot: int, now: _Since) -> None:
        self._account(self._line.pop(digest), now)
        self.bound[digest] = slot
        self._bound_at[digest] = self._step
        self._changed.add(slot)
        self.counters.changes += 1

    def _account(self, since: _Since, now: _Since) -> None:
        counters = self.counters
        counters.longest_steps = max(counters.longest_steps, now.step - since.step)
        counters.longest_s = max(counters.longest_s, now.moment - since.moment)

    def _next_slot(self, wanted: Mapping[str, None], now: _Since) -> int | None:
        """A slot for the head of the line; None while every holder has its turn."""
        if self._empty:
            return self._empty.pop()
        holder = self._yielding(wanted)
        if holder is None:
            return None
        if holder in wanted:
            self._line[holder] = now
        return self._unbind(holder)

    def _yielding(self, wanted: Mapping[str, None]) -> str | None:
        for digest in (*self._idle, *self.bound):
            if digest not in wanted:
                return digest
        for digest in self.bound:
            if digest in self._unused or self._step - self._bound_at[digest] >= QUANTUM:
                return digest
        return None

    def _unbind(self, digest: str) -> int:
        slot = self.bound.pop(digest)
        del self._bound_at[digest]
        self._idle.pop(digest, None)
        self._unused.discard(digest)
        self._changed.add(slot)
        return slot

    def check_integrity(self, adapters: Iterable[str | None]) -> None:
        """Raise IntegrityError unless slots are held once and counts fit. adapters: of live sequences."""
        slots = sorted([*self.bound.values(), *self._empty])
        if slots != list(range(1, self._num_slots + 1)):
            raise IntegrityError(f"slots held {self.bound} and empty {self._empty} do not make the whole")
        live = Counter(digest for digest in adapters if digest is not None)
        if live != self._live:
            raise IntegrityError(f"adapters count {dict(self._live)} sequences; {dict(live)} are live")
        if self._idle.keys() != self.bound.keys() - live.keys():
            raise IntegrityError("an adapter that holds a slot is idle with live sequences, or busy without")
        if self._line.keys() & self.bound.keys() or not self._line.keys() <= live.keys():
            raise IntegrityError("an adapter stands in line that holds a slot, or that nobody wants")
