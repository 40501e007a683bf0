"""Freezing: from consented, rated traffic to an immutable, hashed snapshot. One SQL statement in db."""

from dataclasses import replace

from db import datasets, evals
from db.database import Database
from db.rows import FreezeParams, SnapshotRow

__all__ = ["FreezeParams", "SnapshotRow", "freeze"]


def freeze(db: Database, params: FreezeParams) -> SnapshotRow:
    """Freeze a KTO snapshot of an endpoint's traffic.

    Held out are the prompts that `params` names and those of every evaluation answered so far, whatever its
    suite. Raises: db.errors.EmptySnapshot with the count left at each filter.
    """
    held_out = {*params.held_out, *evals.held_out(db)}
    return datasets.freeze_kto(db, replace(params, held_out=tuple(sorted(held_out))))
