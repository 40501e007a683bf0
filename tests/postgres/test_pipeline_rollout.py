"""Canary, promotion and rollback under their names in the loop."""

from collections.abc import Callable
from typing import Any

import pytest

from db.database import Database
from db.errors import GateClosed
from pipeline import canary, promotion


def test_a_canary_starts_grows_reports_and_stops(db: Database, add_good: Callable[[str], Any]) -> None:
    add_good("assistant-v1")
    assert canary.start(db, "assistant-v1", 5).traffic_pct == 5
    grown = canary.start(db, "assistant-v1", 20, actor="ann")
    assert (grown.status, grown.traffic_pct) == ("canary", 20)
    status = canary.status(db, "assistant-v1")
    assert (status.verdict, status.candidate.raters) == ("inconclusive", 0)
    assert canary.stop(db, "assistant-v1").status == "candidate"


def test_a_good_candidate_is_promoted_and_rolled_back(
    db: Database, endpoint: str, add_good: Callable[[str], Any]
) -> None:
    add_good("assistant-v1")
    assert promotion.blockers(db, "assistant-v1") == []
    assert promotion.promote(db, "assistant-v1").status == "prod"
    assert promotion.rollback(db, endpoint) is None


def test_an_unmeasured_candidate_needs_a_reason(
    db: Database, add_adapter: Callable[..., Any], demand: Callable[..., None]
) -> None:
    demand()
    add_adapter("assistant-v1")
    with pytest.raises(GateClosed) as closed:
        promotion.promote(db, "assistant-v1")
    assert [row.reason for row in closed.value.blockers] == ["missing_candidate", "missing_current"]
    assert promotion.promote(db, "assistant-v1", override_reason="first version").status == "prod"
