"""How many KV blocks a sequence holds and may come to hold, in all groups together. Arithmetic alone.

Tokens are counted in rows: one row is a block of every group, for the same BLOCK_SIZE tokens. A group with a
window holds the rows that the next token still sees, and those of the step under way.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from engine.config import BLOCK_SIZE, blocks_for
from engine.kv_groups import Window

UNLIMITED = 1 << 62


def rows_outside(window: Window, num_computed: int) -> int:
    """Rows at the head of a text that no token from `num_computed` on sees."""
    return 0 if window is None else max(0, num_computed - window + 1) // BLOCK_SIZE


class BlockNeed:
    """windows: of each group. step_tokens: most tokens that one step computes of a sequence.

    bounded: groups with a window.
    """

    def __init__(self, windows: Sequence[Window] = (None,), step_tokens: int = UNLIMITED) -> None:
        self.windows = tuple(windows)
        self.groups = len(self.windows)
        self.bounded = [group for group, window in enumerate(self.windows) if window is not None]
        self._kinds = tuple(
            (window, count, _limit(window, step_tokens)) for window, count in Counter(windows).items()
        )

    def held(self, rows: int, num_computed: int) -> int:
        """Blocks of a sequence whose table has so many rows and whose first tokens are computed."""
        return sum(count * (rows - rows_outside(window, num_computed)) for window, count, _ in self._kinds)

    def lasting(self, rows: int) -> int:
        """Blocks of so many rows that no window ever leaves."""
        return rows * (self.groups - len(self.bounded))

    def passing(self, rows: int, num_computed: int) -> int:
        """Of the blocks held, those that a window will leave."""
        return self.held(rows, num_computed) - self.lasting(rows) if self.bounded else 0

    def most(self, rows: int, num_computed: int = 0) -> int:
        """Blocks that a sequence holds at once, at most, until its table has so many rows."""
        return sum(
            count * min(rows - rows_outside(window, num_computed), limit)
            for window, count, limit in self._kinds
        )

    def rows_within(self, num_blocks: int) -> int:
        """Most rows of a table in a pool of that size; UNLIMITED where windows bound its blocks."""
        if self.most(UNLIMITED) <= num_blocks:
            return UNLIMITED
        return bisect_right(range(num_blocks + 1), num_blocks, key=self.most) - 1

    def places(self, rows: int, num_computed: int) -> Sequence[int]:
        """Where a table of so many rows names blocks that are held: place = row * groups + group."""
        every = range(rows * self.groups)
        if not self.bounded:
            return every
        first = [rows_outside(window, num_computed) * self.groups for window in self.windows]
        return [place for place in every if place >= first[place % self.groups]]


def _limit(window: Window, step_tokens: int) -> int:
    """Blocks of one group that a sequence holds at once, at most."""
    if window is None:
        return UNLIMITED
    # The window of a step's first token, all its tokens, and one more block where those lie askew.
    return blocks_for(window - 1 + step_tokens) + 1
