"""Promotion and its undoing: thin names for the guarded UPDATE on serve.adapter.

The rules (legal transitions, the gate, one prod an endpoint) are the database's triggers, so they hold for
whoever writes SQL by hand as well.
"""

from db import promotion
from db.database import Database
from db.rows import AdapterRow, BlockerRow

__all__ = ["blockers", "promote", "rollback"]


def blockers(db: Database, candidate: str, current: str | None = None) -> list[BlockerRow]:
    """Every reason why `candidate` may not be promoted over `current` (default: the endpoint's prod)."""
    return promotion.blockers(db, candidate, current)


def promote(
    db: Database, adapter_id: str, *, override_reason: str | None = None, actor: str | None = None
) -> AdapterRow:
    """Make an adapter the prod of its endpoint.

    Raises: db.errors.GateClosed (with the blockers), IllegalTransition, NotFound.
    """
    return promotion.promote(db, adapter_id, override_reason=override_reason, actor=actor)


def rollback(db: Database, endpoint: str, *, actor: str | None = None) -> AdapterRow | None:
    """Bring back what served before the present prod; None when that was the base model."""
    return promotion.rollback(db, endpoint, actor=actor)
