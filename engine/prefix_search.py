"""The cached head of a sequence: how far the blocks of all KV groups that a pool can find reach together.

Where every later token sees everything, a group must have every block of the head; where a window bounds
what they see, it is enough to have the last ones. Changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle

from engine.block_need import rows_outside
from engine.blocks import BlockPool
from engine.config import BLOCK_SIZE
from engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Prefix:
    """The cached head of a sequence, `num_tokens` of it.

    table: rows of full blocks. held: places in it that name blocks which later tokens see. sources: one
    block of each group that begins with the tokens behind those rows; none where there are none.
    """

    table: tuple[int, ...] = ()
    held: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    num_tokens: int = 0


def find_prefix(seq: Sequence, pool: BlockPool) -> Prefix:
    """The longest head of `seq` that blocks of the pool hold, leaving what it has to compute itself."""
    most, groups = seq.most_cached, seq.need.groups
    rows = _found_rows(seq, pool, most // BLOCK_SIZE)
    start = rows * BLOCK_SIZE
    rest = seq.token_ids[start : min(start + BLOCK_SIZE, most)]
    sources, common = pool.find_longest(seq.parent_key(rows), rest)
    held = tuple(seq.need.places(rows, start + common))
    table = [0] * (rows * groups)
    for place in held:
        found = pool.find(seq.block_key(place // groups), place % groups)
        table[place] = table[place] if found is None else found
    return Prefix(tuple(table), held, sources, start + common)


def _found_rows(seq: Sequence, pool: BlockPool, most: int) -> int:
    """Rows, up to `most`, whose blocks are there in every group as far as later tokens see them."""
    rows, bounded = most, []
    for group, window in enumerate(seq.need.windows):
        if window is None:
            rows = next((row for row in range(rows) if pool.find(seq.block_key(row), group) is None), rows)
        else:
            bounded.append((group, window))
    agreed = 0
    for group, window in cycle(bounded):
        before, rows = rows, _last_seen(seq, pool, group, window, rows)
        agreed = agreed + 1 if rows == before else 1
        if agreed >= len(bounded):
            break
    return rows


def _last_seen(seq: Sequence, pool: BlockPool, group: int, window: int, most: int) -> int:
    """Rows, up to `most`, the last of which a group with a window has, as many as are seen behind them."""
    rows = row = most
    while row > rows_outside(window, rows * BLOCK_SIZE):
        row -= 1
        if pool.find(seq.block_key(row), group) is None:
            rows = row
    return rows
