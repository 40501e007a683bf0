"""Canary figures and verdicts: per user, by assignment, and silent while there is too little to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from db import canary, feedback, promotion, registry, requests
from db.database import Database
from db.errors import NotFound
from db.rows import AdapterRow, FeedbackRecord, RequestRecord

Serve = Callable[..., None]


@pytest.fixture
def serve(
    db: Database, make_request: Callable[..., RequestRecord], make_feedback: Callable[..., FeedbackRecord]
) -> Serve:
    """Serve users by the split of the registry: serve(keys, up=share of +1 per arm, rated=...)."""

    def run(keys: Sequence[str], *, ups: dict[str, int] | None = None, each: int = 1) -> None:
        experiment = registry.endpoint(db, "assistant").experiment
        with db.transaction() as connection:
            dealt = connection.execute(
                b"SELECT k.key, a.* FROM unnest(%s::text[]) k (key), serve.assign('assistant', k.key) a"
                b" ORDER BY a.variant, k.key",
                (list(keys),),
            ).fetchall()
        records, acts = [], []
        for place, row in enumerate(dealt):
            for number in range(each):
                record = make_request(
                    user_key=row["key"], variant=row["variant"], assigned_adapter_id=row["adapter_id"],
                    adapter_id=row["adapter_id"], bucket=row["bucket"], experiment=experiment,
                )  # fmt: skip
                records.append(record)
                if ups is not None and row["variant"] in ups:
                    value = 1 if (place * 7 + number) % 10 < ups[row["variant"]] else -1
                    acts.append(make_feedback(record.id, value=value, actor=row["key"]))
        requests.insert_batch(db, records)
        feedback.insert_batch(db, acts)

    return run


@pytest.fixture
def candidate(db: Database, add_adapter: Callable[..., AdapterRow]) -> str:
    """A canary at 50 % beside the base model."""
    add_adapter("v1")
    promotion.start_canary(db, "v1", 50)
    return "v1"


KEYS = [f"user-{number}" for number in range(700)]


def test_no_ratings_are_inconclusive_and_change_nothing(db: Database, candidate: str, serve: Serve) -> None:
    for rated in (False, True):
        status = canary.status(db, candidate)
        assert (status.verdict, status.difference, status.low) == ("inconclusive", None, None)
        assert (status.candidate.up_rate, status.control.up_rate is not None) == (None, rated)
        serve(KEYS, ups={"base": 9})
    assert status.candidate.rating_rate == 0.0
    row = registry.adapter(db, candidate)
    assert (row.status, row.traffic_pct) == ("canary", 50.0)


@pytest.mark.parametrize(
    ("ups", "verdict"),
    [({"canary": 9, "base": 3}, "superior"), ({"canary": 3, "base": 9}, "worse"),
     ({"canary": 8, "base": 8}, "inconclusive")],
)  # fmt: skip
def test_verdicts(db: Database, candidate: str, serve: Serve, ups: dict[str, int], verdict: str) -> None:
    serve(KEYS, ups=ups)
    status = canary.status(db, candidate)
    assert status.verdict == verdict, status
    assert status.low is not None
    assert status.high is not None
    assert status.difference is not None
    assert status.low < status.difference < status.high
    assert status.candidate.raters + status.control.raters == 700
    assert status.candidate.up_rate == pytest.approx(ups["canary"] / 10, abs=0.06)
    assert (status.horizon_raters or 0) > 0
    assert registry.adapter(db, candidate).status == "canary"


def test_a_wide_margin_makes_equal_arms_non_inferior(db: Database, candidate: str, serve: Serve) -> None:
    serve(KEYS, ups={"canary": 8, "base": 8})
    status = canary.status(db, candidate, margin=0.3)
    assert (status.verdict, status.horizon_raters) == ("non-inferior", 0)


def test_the_unit_is_the_user(db: Database, candidate: str, serve: Serve) -> None:
    serve(KEYS[:40], ups={"canary": 9, "base": 1}, each=20)
    status = canary.status(db, candidate)
    assert status.candidate.rated == 20 * status.candidate.raters
    assert status.candidate.raters + status.control.raters == 40
    assert status.verdict == "inconclusive"
    assert "raters" in status.reason


def test_rates_are_over_requests_by_assignment(
    db: Database,
    candidate: str,
    make_request: Callable[..., RequestRecord],
    make_feedback: Callable[..., FeedbackRecord],
) -> None:
    common = {"experiment": "v1", "variant": "canary", "assigned_adapter_id": "v1", "user_key": "ann"}
    fell_back = make_request(**common, adapter_id=None, finish_reason="error")
    again = make_request(**common)
    child = make_request(**common, parent_id=again.id)
    rated = make_request(**common)
    requests.insert_batch(db, [fell_back, again, child, rated, make_request(**common, source="eval")])
    feedback.insert_batch(db, [make_feedback(rated.id, value=1)])
    arm = canary.status(db, candidate).candidate
    assert (arm.users, arm.requests, arm.rated, arm.raters) == (1, 4, 1, 1)
    assert (arm.rating_rate, arm.regenerate_rate, arm.error_rate) == (0.25, 0.25, 0.25)
    assert (arm.up_rate, arm.configured_pct) == (1.0, 50.0)


def test_earlier_rounds_do_not_count(db: Database, candidate: str, serve: Serve) -> None:
    serve(KEYS[:50], ups={"canary": 9, "base": 9})
    promotion.stop_canary(db, candidate)
    with pytest.raises(NotFound, match="not canary"):
        canary.status(db, candidate)
    promotion.start_canary(db, candidate, 50)
    assert canary.status(db, candidate).candidate.requests == 0


def count_users(db: Database, make_request: Callable[..., RequestRecord], arm: str, n: int) -> None:
    adapter = "v1" if arm == "canary" else None
    requests.insert_batch(
        db,
        [
            make_request(
                user_key=f"{arm}-{number}", variant=arm, assigned_adapter_id=adapter, experiment="v1"
            )
            for number in range(n)
        ],
    )


@pytest.mark.parametrize(
    ("control", "dealt", "alarm"), [(940, 60, False), (9_400, 600, True), (9_480, 520, False)]
)
def test_users_must_be_dealt_as_configured(
    db: Database,
    add_adapter: Callable[..., AdapterRow],
    make_request: Callable[..., RequestRecord],
    control: int,
    dealt: int,
    alarm: bool,
) -> None:
    add_adapter("v1")
    promotion.start_canary(db, "v1", 5)
    count_users(db, make_request, "base", control)
    count_users(db, make_request, "canary", dealt)
    status = canary.status(db, "v1")
    assert status.ratio_p is not None
    assert (status.ratio_p < 0.001) is alarm
    assert ("not dealt as configured" in status.reason) is alarm
    assert status.verdict == "inconclusive"


def test_an_arm_without_share_that_gets_users_is_a_leak(
    db: Database, add_adapter: Callable[..., AdapterRow], make_request: Callable[..., RequestRecord]
) -> None:
    add_adapter("v1")
    promotion.start_canary(db, "v1", 0)
    count_users(db, make_request, "base", 20)
    assert canary.status(db, "v1").ratio_p is None
    count_users(db, make_request, "canary", 1)
    status = canary.status(db, "v1")
    assert (status.ratio_p, status.verdict) == (0, "inconclusive")


def test_users_whom_the_kill_switch_keeps_from_a_canary_count_as_dealt_to_it(
    db: Database, candidate: str, make_request: Callable[..., RequestRecord]
) -> None:
    common = {"experiment": "v1", "adapter_id": None, "variant": "base"}
    requests.insert_batch(
        db,
        [
            make_request(**common, user_key=f"u-{number}", assigned_adapter_id="v1" if number < 100 else None)
            for number in range(200)
        ],
    )
    assert canary.status(db, candidate).ratio_p == 1.0


def test_the_ratio_is_tested_against_the_share_of_now(db: Database, candidate: str, serve: Serve) -> None:
    serve(KEYS)
    promotion.start_canary(db, candidate, 5)
    assert canary.status(db, candidate).ratio_p is None
    serve(KEYS)
    status = canary.status(db, candidate)
    assert status.ratio_p is not None
    assert status.ratio_p > 0.001
