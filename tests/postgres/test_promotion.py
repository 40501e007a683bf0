"""Promotion and rollback through a plain UPDATE: legal ways, shares, writers at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from db import audit, promotion, registry
from db.database import Database
from db.errors import Conflict, GateClosed, IllegalTransition, InvalidValue, NotFound
from db.rows import AdapterRow, AdapterStatus

Add = Callable[..., AdapterRow]


def run(db: Database, *statements: str) -> None:
    with db.transaction() as connection:
        for statement in statements:
            connection.execute(statement.encode())


def statuses(db: Database) -> dict[str, AdapterStatus]:
    return {row.id: row.status for row in registry.snapshot(db).adapters}


def test_an_update_promotes_and_rolls_back_and_promotes_again(db: Database, add_good: Add) -> None:
    add_good("v1")
    run(db, "UPDATE serve.adapter SET status = 'prod' WHERE id = 'v1'")
    first = registry.adapter(db, "v1")
    assert (first.status, first.traffic_pct, first.replaced) == ("prod", 100.0, None)
    add_good("v2")
    run(db, "UPDATE serve.adapter SET status = 'prod' WHERE id = 'v2'")
    assert statuses(db) == {"v1": "retired", "v2": "prod"}
    run(db, "UPDATE serve.adapter SET status = 'prod' WHERE id = 'v1'")
    assert statuses(db) == {"v1": "prod", "v2": "retired"}
    run(db, "UPDATE serve.adapter SET status = 'prod' WHERE id = 'v2'")
    assert statuses(db) == {"v1": "retired", "v2": "prod"}
    story = [(e.adapter_id, e.from_status, e.to_status, e.reason) for e in registry.events(db)]
    assert story[:4] == [
        ("v2", "retired", "prod", "rollback"),
        ("v1", "prod", "retired", None),
        ("v1", "retired", "prod", "rollback"),
        ("v2", "prod", "retired", None),
    ]
    assert audit.verify(db) == []


def test_a_rollback_needs_no_gate_and_undoes_promotions_one_by_one(db: Database, add_good: Add) -> None:
    for name in ("v1", "v2", "v3"):
        add_good(name)
        promotion.promote(db, name)
    run(db, "ALTER TABLE train.eval_result DISABLE TRIGGER ALL", "DELETE FROM train.eval_result")
    names = []
    for _ in range(2):
        row = promotion.rollback(db, "assistant", actor="ops")
        assert row is not None
        names.append(row.id)
    assert names == ["v2", "v1"]
    assert promotion.rollback(db, "assistant") is None
    assert set(statuses(db).values()) == {"retired"}
    with pytest.raises(NotFound, match="no prod"):
        promotion.rollback(db, "assistant")
    with pytest.raises(NotFound, match="'nosuch'"):
        promotion.rollback(db, "nosuch")
    assert registry.events(db, adapter_id="v1", limit=1)[0].reason == "rollback"


def test_an_override_passes_the_gate_and_leaves_its_reason_and_the_blockers(
    db: Database, add_adapter: Add
) -> None:
    add_adapter("v1")
    with pytest.raises(GateClosed, match="no_metrics") as closed:
        promotion.promote(db, "v1")
    assert [blocker.reason for blocker in closed.value.blockers] == ["no_metrics"]
    assert registry.adapter(db, "v1").status == "candidate"
    run(db, "SET LOCAL noria.override_reason = 'first one'", "UPDATE serve.adapter SET status = 'prod'")
    assert registry.events(db, adapter_id="v1")[0].reason == "first one"
    event = audit.events(db, limit=1)[0]
    assert event.detail["reason"] == "first one"
    assert event.detail["overridden_blockers"][0]["reason"] == "no_metrics"
    # A retired canary that never was prod is no rollback.
    add_adapter("v2")
    promotion.start_canary(db, "v2", 5)
    promotion.set_status(db, "v2", "retired")
    with pytest.raises(GateClosed):
        promotion.promote(db, "v2")


@pytest.mark.parametrize(
    "path",
    [
        ("retired",),
        ("rejected", "candidate"),
        ("rejected", "prod"),
        ("canary", "retired", "candidate"),
        ("prod", "candidate"),
        ("prod", "canary"),
        ("prod", "rejected"),
    ],
)
def test_illegal_transitions_are_refused(
    db: Database, add_good: Add, path: tuple[AdapterStatus, ...]
) -> None:
    add_good("v1")
    *way, last = path
    for status in way:
        promotion.set_status(db, "v1", status)
    with pytest.raises(IllegalTransition, match=f"to {last}"):
        promotion.set_status(db, "v1", last, override_reason="even so")


def test_a_second_prod_a_misspelt_status_and_a_share_beyond_100_are_refused(
    db: Database, add_good: Add
) -> None:
    add_good("v1")
    promotion.promote(db, "v1")
    columns = "(id, digest, base_model, endpoint, status, traffic_pct, store_uri, config, bytes)"
    with pytest.raises((Conflict, IllegalTransition)):
        run(
            db,
            f"INSERT INTO serve.adapter {columns} VALUES "
            "('v2', 'sha256:2', 'tiny', 'assistant', 'prod', 100, '', '{}', 0)",
        )
    run(db, "ALTER TABLE serve.adapter DISABLE TRIGGER USER")
    with pytest.raises(Conflict, match="one_prod_per_endpoint"):
        run(
            db,
            f"INSERT INTO serve.adapter {columns} VALUES "
            "('v2', 'sha256:2', 'tiny', 'assistant', 'prod', 100, '', '{}', 0)",
        )
    run(db, "ALTER TABLE serve.adapter ENABLE TRIGGER USER")
    for change in (
        "status = 'Prod'",
        "status = NULL",
        "traffic_pct = 999.99",
        "traffic_pct = -1",
        "traffic_pct = 50",
        "traffic_pct = 'NaN'",
        "status = 'retired', traffic_pct = 999.99",
        "canary_start = 10",
    ):
        try:
            run(db, f"UPDATE serve.adapter SET {change} WHERE id = 'v1'")
        except InvalidValue:
            continue
        assert change == "canary_start = 10"  # a start is given, not taken
    row = registry.adapter(db, "v1")
    assert (row.status, row.traffic_pct, row.canary_start) == ("prod", 100.0, None)


def test_an_ad_hoc_adapter_has_no_status_to_change(db: Database, add_adapter: Add) -> None:
    add_adapter("scratch", endpoint=None)
    with pytest.raises(InvalidValue, match="only_endpoints_have_status"):
        promotion.promote(db, "scratch", override_reason="x")
    with pytest.raises(NotFound, match="'nosuch'"):
        promotion.promote(db, "nosuch")


def test_canary_shares_keep_their_start_and_never_overlap(db: Database, add_adapter: Add) -> None:
    for name in ("v1", "v2", "v3"):
        add_adapter(name)
    assert promotion.start_canary(db, "v1", 5).canary_start == 0
    assert registry.endpoint(db, "assistant").experiment == "v1"
    assert promotion.start_canary(db, "v1", 20).canary_start == 0
    second = promotion.start_canary(db, "v2", 30)
    assert second.canary_start == 6000
    assert registry.endpoint(db, "assistant").experiment == "v1"
    with pytest.raises(Conflict, match=r"at most 60\.0+ %"):
        promotion.start_canary(db, "v1", 60.01)
    assert promotion.start_canary(db, "v1", 60).traffic_pct == 60.0
    assert promotion.start_canary(db, "v2", 40).canary_start == 6000
    with pytest.raises(Conflict, match="no room"):
        promotion.start_canary(db, "v3", 1)
    with pytest.raises(InvalidValue):
        promotion.start_canary(db, "v1", 100.01)
    stopped = promotion.stop_canary(db, "v1")
    assert (stopped.status, stopped.traffic_pct, stopped.canary_start) == ("candidate", 0.0, None)
    assert promotion.start_canary(db, "v3", 1).canary_start == 3000
    kinds = [(e.kind, e.traffic_pct) for e in registry.events(db, adapter_id="v1")]
    assert kinds == [
        ("status", 0.0),
        ("traffic", 60.0),
        ("traffic", 20.0),
        ("status", 5.0),
        ("registered", 0.0),
    ]


def test_a_new_round_deals_users_anew_and_the_same_one_the_same(db: Database, add_adapter: Add) -> None:
    def canary_users() -> set[int]:
        with db.transaction() as connection:
            found = connection.execute(
                b"SELECT i FROM generate_series(1, 500) i, serve.assign('assistant', 'user-' || i) a"
                b" WHERE a.variant = 'canary'"
            ).fetchall()
        return {row["i"] for row in found}

    add_adapter("v1")
    add_adapter("v2")
    promotion.start_canary(db, "v1", 20)
    first = canary_users()
    promotion.start_canary(db, "v1", 40)
    assert first < canary_users()
    promotion.stop_canary(db, "v1")
    assert canary_users() == set()
    promotion.start_canary(db, "v2", 20)
    assert canary_users() != first
    promotion.stop_canary(db, "v2")
    promotion.start_canary(db, "v1", 20)
    assert canary_users() == first


def test_promoting_a_canary_frees_its_share(db: Database, add_good: Add) -> None:
    add_good("v1")
    promotion.start_canary(db, "v1", 20)
    row = promotion.promote(db, "v1")
    assert (row.traffic_pct, row.canary_start) == (100.0, None)
    add_good("v2")
    assert promotion.start_canary(db, "v2", 100).canary_start == 0


def test_promotions_at_once_leave_exactly_one_prod(db: Database, add_good: Add) -> None:
    names = [f"v{number}" for number in range(4)]
    for name in names:
        add_good(name)
    gate = threading.Barrier(len(names))

    def promote(name: str) -> None:
        with Database(db.url, max_size=1) as own, own.transaction() as connection:
            gate.wait()
            connection.execute(b"UPDATE serve.adapter SET status = 'prod' WHERE id = %s", (name,))

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(promote, names))
    assert sorted(statuses(db).values()) == ["prod", "retired", "retired", "retired"]
    promoted = [e.adapter_id for e in reversed(registry.events(db)) if e.to_status == "prod"]
    assert sorted(promoted) == names
    row = registry.adapter(db, promoted[-1])
    assert (row.status, row.replaced) == ("prod", promoted[-2])
    assert audit.verify(db) == []


def test_a_promotion_is_all_or_nothing(db: Database, add_good: Add) -> None:
    add_good("v1")
    promotion.promote(db, "v1")
    add_good("v2")
    epoch = registry.epoch(db)
    with pytest.raises(InvalidValue):
        run(db, "UPDATE serve.adapter SET status = 'prod' WHERE id = 'v2'", "SELECT 1 / 0")
    assert statuses(db) == {"v1": "prod", "v2": "candidate"}
    assert registry.epoch(db) == epoch
    assert audit.verify(db) == []
