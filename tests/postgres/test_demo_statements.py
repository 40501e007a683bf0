"""The SQL that the demonstration types into psql, on a real server."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from db import promotion, registry
from db.database import Database
from db.rows import AdapterRow
from noria.demo import psql
from noria.demo.errors import StageFailed

Add = Callable[..., AdapterRow]


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=120)


def test_a_canary_is_promoted_rolled_back_and_promoted_again(
    db: Database, url: str, add_good: Add, console: Console
) -> None:
    add_good("assistant-v1")
    promotion.start_canary(db, "assistant-v1", 20.0)
    reason = "it's inconclusive: 24 raters"
    psql.type_in(url, psql.promotion("assistant-v1", reason), console)
    assert registry.adapter(db, "assistant-v1").status == "prod"
    assert registry.events(db, adapter_id="assistant-v1")[0].reason == reason
    psql.type_in(url, psql.rollback("assistant"), console)
    assert registry.adapter(db, "assistant-v1").status == "retired"
    psql.type_in(url, psql.promotion("assistant-v1", None), console)
    assert registry.adapter(db, "assistant-v1").status == "prod"


def test_an_earlier_version_that_stepped_back_is_not_brought_back_by_the_rollback(
    db: Database, url: str, add_good: Add, console: Console
) -> None:
    add_good("assistant-v1")
    promotion.promote(db, "assistant-v1")
    promotion.set_status(db, "assistant-v1", "retired")
    add_good("assistant-v2")
    psql.type_in(url, psql.promotion("assistant-v2", None), console)
    psql.type_in(url, psql.rollback("assistant"), console)
    statuses = {row.id: row.status for row in registry.snapshot(db).adapters}
    assert statuses == {"assistant-v1": "retired", "assistant-v2": "retired"}


def test_what_the_gate_refuses_fails_the_stage_with_its_words(
    url: str, add_adapter: Add, demand: Callable[..., None], console: Console
) -> None:
    demand()
    add_adapter("assistant-v1")
    with pytest.raises(StageFailed, match="promot"):
        psql.type_in(url, psql.promotion("assistant-v1", None), console)


def test_the_provenance_query_runs_and_is_shown(url: str, console: Console) -> None:
    shown = psql.type_in(url, psql.provenance("01990000-0000-7000-8000-000000000000", 6), console)
    assert "source_request_id" in shown
    assert "(0 rows)" in shown
