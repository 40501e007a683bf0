"""The waiting queue: by priority, then by arrival. Knows no blocks and no budget.

A preempted sequence comes back with its old arrival, so it stands before everything that came later.
Looking at the first costs nothing, however many wait; only it is ever examined, so no later and
smaller request overtakes it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from engine.sequence import Sequence


def _order(seq: Sequence) -> tuple[int, int, int]:
    return seq.order


class WaitingQueue:
    """Sequences kept sorted by `order`, which is unique."""

    def __init__(self) -> None:
        self._seqs: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._seqs)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._seqs)

    @property
    def first(self) -> Sequence:
        return self._seqs[0]

    def add(self, seq: Sequence) -> None:
        insort(self._seqs, seq, key=_order)

    def remove(self, seq: Sequence) -> None:
        """Take out a sequence that is in the queue."""
        del self._seqs[bisect_left(self._seqs, seq.order, key=_order)]
