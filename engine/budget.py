"""Tokens one step may compute, those behind a long context weighed by what their attention costs.

So the time of a step, and with it the longest gap in a running stream, does not grow with the prompt that is
taken in beside it. Knows no sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """A token with `context` tokens before it weighs 1 + context / balance; infinite: always 1.

    balance: context at which a token's attention takes as long as all its products.
    """

    balance: float = math.inf

    def of(self, start: int, count: int) -> float:
        """What tokens start .. start + count - 1 of a sequence weigh."""
        return count + count * (start + (count - 1) / 2) / self.balance

    def most(self, start: int, weight: float) -> int:
        """Most tokens from `start` on that weigh no more than `weight`."""
        if self.balance == math.inf:
            return int(weight)
        # of(start, count) = weight, a quadratic equation in count.
        half = self.balance + start - 0.5
        return int(math.sqrt(half * half + 2 * self.balance * max(0.0, weight)) - half)


class TokenBudget:
    """What is left of a step's budget, in tokens without context."""

    def __init__(self, tokens: int, weights: TokenWeights) -> None:
        self.left: float = tokens
        self._weights = weights

    def take(self, wanted: int, start: int, *, reserve: int = 0) -> int:
        """Take up to `wanted` tokens from `start` on, leaving `reserve` for others; returns how many.

        A single token weighs 1: it is a running stream's next, which no step goes without. Where one is
        there to take, one is given, however much it weighs.
        """
        there = self.left - reserve
        if wanted < 1 or there < 1:
            return 0
        taken = 1 if wanted == 1 else max(1, min(wanted, self._weights.most(start, there)))
        self.left = max(reserve, self.left - (1 if wanted == 1 else self._weights.of(start, taken)))
        return taken

    def refund(self, tokens: int) -> None:
        """Put back tokens of a sequence that will not run in this step after all, as if without context."""
        self.left += tokens
