"""Cached blocks nobody uses, in the order in which they are given up: least recently used, reuse weighed in.

Each time a block was found again counts as if it had been used a quarter of the pool's size later, up to
MAX_WEIGHT times: what many have shared outlives a burst of blocks that are used once, and still ages.
Knows no keys and no references.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

MAX_WEIGHT = 8
"""Reuses that count."""


class IdleBlocks:
    """Blocks by the moment they were last used, as weighed; adding and taking cost O(log n)."""

    def __init__(self, num_blocks: int) -> None:
        self._bonus = num_blocks // 4
        self._most_entries = 2 * num_blocks + 16
        self._clock = 0
        self._moments: dict[int, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._moments)

    def __contains__(self, block: int) -> bool:
        return block in self._moments

    def __iter__(self) -> Iterator[int]:
        return iter(self._moments)

    def add(self, block: int, reuses: int) -> None:
        """`block` is used no more, or, being idle, was looked at just now."""
        self._clock += 1
        moment = self._clock + min(reuses, MAX_WEIGHT) * self._bonus, self._clock
        self._moments[block] = moment
        heappush(self._heap, (*moment, block))
        if len(self._heap) > self._most_entries:
            self._heap = [(*moment, block) for block, moment in self._moments.items()]
            heapify(self._heap)

    def remove(self, block: int) -> None:
        """`block` is used again; its entry in the heap is passed over when its turn comes."""
        del self._moments[block]

    def take(self) -> int:
        """The block to give up next; there is one."""
        while True:
            *moment, block = heappop(self._heap)
            if self._moments.get(block) == tuple(moment):
                del self._moments[block]
                return block
