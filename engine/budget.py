"""Tokens one step may compute. Knows no sequence."""

from __future__ import annotations


class TokenBudget:
    """What is left of a step's token budget."""

    def __init__(self, tokens: int) -> None:
        self.left = tokens

    def take(self, wanted: int, *, reserve: int = 0) -> int:
        """Take up to `wanted` tokens, leaving `reserve` for others; returns how many were taken."""
        taken = max(0, min(wanted, self.left - reserve))
        self.left -= taken
        return taken

    def refund(self, tokens: int) -> None:
        """Put back what was taken for a sequence that will not run in this step after all."""
        self.left += tokens
