"""The waiting queue: by priority, then by arrival, in a line for each adapter. Knows no blocks and no budget.

A preempted sequence comes back with its old arrival, so it stands before everything that came later. Only
the first of each line is ever looked at: that costs nothing, however many wait, and no later and smaller
request overtakes it. One that was the first of all open lines and was turned away holds up whatever comes
after it in every line, until it is in.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from heapq import merge

from engine.sequence import Sequence


def _order(seq: Sequence) -> tuple[int, int, int]:
    return seq.order


class WaitingQueue:
    """Sequences kept sorted by `order`, which is unique, in the lines of the adapters they begin with."""

    def __init__(self) -> None:
        self._lines: dict[str | None, list[Sequence]] = {}
        self._count = 0
        self._turned_away: list[Sequence] = []

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sequence]:
        return merge(*self._lines.values(), key=_order)

    @property
    def lines(self) -> Iterable[str | None]:
        """Adapters that somebody waits to begin with, None for the base model."""
        return self._lines.keys()

    def first_of(self, adapters: Iterable[str | None]) -> Sequence | None:
        """The first that begins with one of `adapters`; None if one that was turned away is before it."""
        heads = [line[0] for adapter in adapters if (line := self._lines.get(adapter))]
        first = min(heads, key=_order, default=None)
        away = self._turned_away
        while away and away[-1].state != "waiting":
            away.pop()
        return None if first is None or (away and away[-1].order < first.order) else first

    def turn_away(self, seq: Sequence) -> None:
        """What first_of() gave could not be let in."""
        # So each of these comes before the one below it, and the last is before all.
        if not self._turned_away or self._turned_away[-1] is not seq:
            self._turned_away.append(seq)

    def add(self, seq: Sequence) -> None:
        insort(self._lines.setdefault(seq.begins_with, []), seq, key=_order)
        self._count += 1

    def remove(self, seq: Sequence) -> None:
        """Take out a sequence that is in the queue."""
        line = self._lines[seq.begins_with]
        del line[bisect_left(line, seq.order, key=_order)]
        if not line:
            del self._lines[seq.begins_with]
        self._count -= 1
