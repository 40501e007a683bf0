"""Freezing: from consented, rated traffic to an immutable, hashed snapshot. One SQL statement in db."""

from db import datasets
from db.database import Database
from db.rows import FreezeParams, SnapshotRow

__all__ = ["FreezeParams", "SnapshotRow", "freeze"]


def freeze(db: Database, params: FreezeParams) -> SnapshotRow:
    """Freeze a KTO snapshot of an endpoint's traffic.

    Raises: db.errors.EmptySnapshot with the count left at each filter.
    """
    return datasets.freeze_kto(db, params)
