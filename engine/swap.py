"""Host memory for the blocks of preempted sequences, and when to use it instead of computing again.

A preempted sequence either forgets its keys and values and computes them again, or has them copied to
blocks of host memory and back: whichever takes less time. Host blocks bear ids after those of the pool,
so one kind of copy moves blocks either way. Each is in exactly one of three states:

    free
    holding    a waiting sequence's, named by its `saved`      freed when that runs again or ends
    leaving    being copied back by the step now under way     freed when that step is over

Knows neither the pool nor the queue.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.config import blocks_for
from engine.costs import RestoreCosts
from engine.errors import IntegrityError
from engine.sequence import Sequence


class SwapSpace:
    """Host blocks first .. first + num_blocks - 1, and whose they are."""

    def __init__(self, first: int, num_blocks: int, costs: RestoreCosts) -> None:
        self.num_blocks = num_blocks
        self._first = first
        self._costs = costs
        self._free = list(range(first + num_blocks - 1, first - 1, -1))
        self._leaving: list[int] = []
        self._new: list[Sequence] = []

    @property
    def num_free(self) -> int:
        return len(self._free)

    def is_worth(self, seq: Sequence) -> bool:
        """Whether the blocks of a running sequence fit, and are sooner copied than computed."""
        needed = _blocks_of(seq, seq.num_computed)
        return 0 < needed <= len(self._free) and self._costs.prefers_swap(seq.num_computed, needed)

    def take(self, seq: Sequence) -> list[int]:
        """Host blocks for all computed tokens of a sequence; the step to come fills them."""
        seq.saved = [self._free.pop() for _ in range(_blocks_of(seq, seq.num_computed))]
        seq.num_saved = seq.num_computed
        self._new.append(seq)
        return seq.saved

    def give_back(self, seq: Sequence) -> list[int]:
        """The sequence's host blocks, which the step to come copies back to the pool."""
        saved = seq.saved
        self._leaving += saved
        seq.saved, seq.num_saved = [], 0
        return saved

    def drop(self, seq: Sequence) -> None:
        """The sequence has no more use for what was saved, if anything was."""
        self._free += seq.saved
        seq.saved, seq.num_saved = [], 0

    def settle(self) -> None:
        """The step is over: what left is free, what was saved is there."""
        self._free += self._leaving
        self._leaving, self._new = [], []

    def distrust(self) -> None:
        """The step failed: what it should have saved is computed again."""
        for seq in self._new:
            self.drop(seq)
        self.settle()

    def check_integrity(self, waiting: Iterable[Sequence]) -> None:
        """Raise IntegrityError unless every block is in one state, and saved tokens have their blocks."""
        waiting = list(waiting)
        held = [block for seq in waiting for block in seq.saved]
        known = sorted([*self._free, *self._leaving, *held])
        if known != list(range(self._first, self._first + self.num_blocks)):
            raise IntegrityError("a host block is lost, or in more than one state")
        if any(len(seq.saved) != _blocks_of(seq, seq.num_saved) for seq in waiting):
            raise IntegrityError("a waiting sequence saved more tokens than its host blocks hold, or fewer")


def _blocks_of(seq: Sequence, num_tokens: int) -> int:
    """Blocks of its first tokens that it still holds when those are computed."""
    return seq.need.held(blocks_for(num_tokens), num_tokens)
