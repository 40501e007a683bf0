"""The order in which labelled rows are trained: shuffled by a recorded seed, labels spread evenly.

TRL reads KTO rows in the order given and estimates its KL term inside each batch, so an order by time or by
label ruins a run. The order here depends on the seed and the row ids alone, never on how rows arrived.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol, TypeVar


class Labelled(Protocol):
    """A row with an id of its own and a label."""

    @property
    def id(self) -> str: ...
    @property
    def label(self) -> bool: ...


Row = TypeVar("Row", bound=Labelled)


def spread(rows: Sequence[Row], seed: int) -> list[Row]:
    """Rows shuffled by `seed` with the rarer label at even distances.

    When the rarer label holds at least one row in 16, every 16 rows in a row contain both labels.
    """
    shuffled = sorted(rows, key=lambda row: _rank(row, seed))
    ups = [row for row in shuffled if row.label]
    downs = [row for row in shuffled if not row.label]
    few, many = (ups, downs) if len(ups) <= len(downs) else (downs, ups)
    total = len(shuffled)
    ordered: list[Row] = []
    taken = 0
    for position in range(total):
        due = ((2 * position + 1) * len(few) + total) // (2 * total)
        if due > taken:
            ordered.append(few[taken])
            taken += 1
        else:
            ordered.append(many[position - taken])
    return ordered


def whole_batches(rows: Sequence[Row], batch: int) -> list[Row]:
    """Rows without a last batch of one: such a batch would pair a row with itself in the KL term."""
    return list(rows[:-1]) if len(rows) % batch == 1 else list(rows)


def _rank(row: Labelled, seed: int) -> str:
    return hashlib.sha256(f"{seed}\x1f{row.id}".encode()).hexdigest()
