"""Whether to copy or to compute again what a preempted sequence had computed, by times measured here.

Its blocks go over the link twice, or its tokens are computed again. The copy of a block is timed once, when
the engine starts; tokens are timed step by step. Knows no clock: it is told seconds.
"""

from __future__ import annotations

from typing import Protocol

from engine.budget import TokenWeights
from engine.records import StepPlan

NEWEST = 0.2
"""Share of the newest step in what a token is reckoned with."""


class RestoreCosts(Protocol):
    """Chooses between the two ways."""

    def observe(self, plan: StepPlan, seconds: float) -> None:
        """A step took so long."""

    def prefers_swap(self, num_tokens: int, num_blocks: int) -> bool:
        """Whether moving `num_blocks` out and in again takes less than computing their tokens."""


class MeasuredCosts:
    """block_seconds: of one block's copy one way. token_seconds: of a token without context, as observed.

    Only steps of half the tokens of the largest or more are looked at: what is computed again comes in
    large steps, and small ones say what reading the weights takes. Before the first, nothing is swapped.
    """

    def __init__(self, block_seconds: float, weights: TokenWeights) -> None:
        self.block_seconds = block_seconds
        self.token_seconds = 0.0
        self._weights = weights
        self._largest = 0

    def observe(self, plan: StepPlan, seconds: float) -> None:
        tokens = plan.num_tokens
        if 2 * tokens < self._largest:
            return
        latest = seconds / sum(self._weights.of(share.start, share.count) for share in plan.seqs)
        # What was observed of steps half as large or less counts no more.
        is_known = tokens < 2 * self._largest
        self.token_seconds += (latest - self.token_seconds) * (NEWEST if is_known else 1.0)
        self._largest = max(self._largest, tokens)

    def prefers_swap(self, num_tokens: int, num_blocks: int) -> bool:
        moving = 2 * num_blocks * self.block_seconds
        return moving < self._weights.of(0, num_tokens) * self.token_seconds
