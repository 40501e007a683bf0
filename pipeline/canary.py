"""Canary: a sticky share of an endpoint's users answers the question whether a candidate is better.

Thin over db: the share is a row, the verdict an always-valid interval computed in SQL. `inconclusive` is a
verdict like the others; it is never a reason to promote.
"""

from db import canary, promotion
from db.database import Database
from db.rows import AdapterRow, CanaryStatus

__all__ = ["start", "status", "stop"]


def start(db: Database, adapter_id: str, pct: float, *, actor: str | None = None) -> AdapterRow:
    """Give the adapter `pct` per cent of its endpoint's users, or change its share while it runs."""
    return promotion.start_canary(db, adapter_id, pct, actor=actor)


def stop(db: Database, adapter_id: str, *, actor: str | None = None) -> AdapterRow:
    """Take the share away; the adapter is a candidate again."""
    return promotion.stop_canary(db, adapter_id, actor=actor)


def status(
    db: Database, adapter_id: str, *, margin: float = 0.05, alpha: float = 0.05, min_raters: int = 100
) -> CanaryStatus:
    """Figures of both arms, the verdict and how many raters it still needs.

    `margin` is the non-inferiority margin in the unit of the up-rate, `alpha` the error probability.
    """
    return canary.status(db, adapter_id, margin=margin, alpha=alpha, min_raters=min_raters)
