"""The promotion gate: every way in which figures are missing, worse or not comparable blocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from db import audit, evals, promotion, registry
from db.database import Database
from db.errors import GateClosed, InvalidValue
from db.rows import AdapterRow, EvalCaseRow, EvalMetricRow, EvalResultRow

Add = Callable[..., AdapterRow]
Measure = Callable[..., int]
Demand = Callable[..., None]


def reasons(db: Database, candidate: str = "v1", current: str | None = None) -> list[str]:
    found = promotion.blockers(db, candidate, current)
    assert promotion.can_promote(db, candidate, current) is not bool(found)
    assert all(blocker.detail for blocker in found)
    return [blocker.reason for blocker in found]


def rule(**given: object) -> EvalMetricRow:
    values: dict[str, object] = {"suite": "quality", "metric": "accuracy", "min_n": 50, "tolerance": 0.02}
    return EvalMetricRow(**{**values, **given})  # type: ignore[arg-type]  # fields are given by name


def test_a_good_candidate_passes(db: Database, add_good: Add) -> None:
    add_good("v1")
    assert reasons(db) == []


def test_nothing_is_allowed_for_what_is_unknown(
    db: Database, add_adapter: Add, add_good: Add, demand: Demand
) -> None:
    add_good("v1")
    assert reasons(db, "nosuch") == ["unknown_candidate"]
    assert reasons(db, "v1", "nosuch") == ["unknown_current"]
    add_adapter("scratch", endpoint=None)
    assert reasons(db, "scratch") == ["no_endpoint"]


def test_no_rules_and_no_results_block(db: Database, add_adapter: Add, demand: Demand) -> None:
    add_adapter("v1")
    assert reasons(db) == ["no_metrics"]
    demand([rule(required=False)])
    assert reasons(db) == ["no_metrics"]
    demand()
    assert reasons(db) == ["missing_candidate", "missing_current"]


def test_a_metric_missing_on_one_side_blocks(
    db: Database, add_adapter: Add, demand: Demand, measure: Measure
) -> None:
    demand()
    row = add_adapter("v1")
    measure(row.digest, 0.9)
    assert reasons(db) == ["missing_current"]
    other = add_adapter("v2")
    measure("base", 0.8)
    assert reasons(db, "v1") == []
    assert reasons(db, "v2") == ["missing_candidate"]
    assert reasons(db, "v1", other.id) == ["missing_current"]


def test_a_result_without_value_blocks(
    db: Database, add_adapter: Add, demand: Demand, measure: Measure
) -> None:
    demand()
    row = add_adapter("v1")
    measure("base", 0.8)
    measure(row.digest, None)
    assert reasons(db) == ["null_candidate"]
    measure(row.digest, 0.9)
    measure("base", None)
    assert reasons(db) == ["null_current"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_no_numbers_are_refused(
    db: Database, endpoint: str, measure: Measure, value: float
) -> None:
    with pytest.raises(InvalidValue):
        measure("base", value)
    with pytest.raises(InvalidValue):
        measure("base", 0.5, low=value)
    with pytest.raises(InvalidValue):
        evals.set_metric(db, rule(floor=value))
    assert evals.latest(db, "base", "sha256:" + "b" * 64) == []


def test_worse_is_worse_in_the_direction_of_the_metric(
    db: Database, add_adapter: Add, demand: Demand, measure: Measure
) -> None:
    demand([rule(metric="refusal_rate", direction="lower")])
    row = add_adapter("v1")
    measure("base", 0.02, metric="refusal_rate")
    measure(row.digest, 0.60, metric="refusal_rate")
    blocker = promotion.blockers(db, "v1")[0]
    assert (blocker.reason, blocker.metric) == ("worse_than_current", "refusal_rate")
    assert (blocker.candidate_value, blocker.current_value, blocker.limit_value) == (0.60, 0.02, 0.02)
    with pytest.raises(GateClosed, match="worse_than_current quality/refusal_rate"):
        promotion.promote(db, "v1")
    measure(row.digest, 0.0, metric="refusal_rate")
    assert reasons(db) == []


@pytest.mark.parametrize(("value", "expected"), [(0.78, []), (0.7799, ["worse_than_current"])])
def test_the_tolerance_is_a_step_not_a_ratio(
    db: Database, add_adapter: Add, demand: Demand, measure: Measure, value: float, expected: list[str]
) -> None:
    demand()
    measure("base", 0.80)
    measure(add_adapter("v1").digest, value)
    assert reasons(db) == expected


def test_the_floor_bounds_the_confidence_bound(
    db: Database, add_adapter: Add, demand: Demand, measure: Measure
) -> None:
    demand([rule(floor=0.7), rule(metric="harm", direction="lower", floor=0.2, required=False)])
    row = add_adapter("v1")
    measure("base", 0.7)
    measure(row.digest, 0.75, low=0.69, high=0.8)
    assert reasons(db) == ["floor"]
    measure(row.digest, 0.75, low=None, high=None)
    assert reasons(db) == ["no_bound"]
    measure(row.digest, 0.75, low=0.7, high=0.8)
    assert reasons(db) == []


def test_the_floor_of_a_lower_is_better_metric_bounds_the_upper_bound(
    db: Database, add_adapter: Add, demand: Demand, measure: Measure
) -> None:
    demand([rule(metric="harm", direction="lower", floor=0.2)])
    row = add_adapter("v1")
    measure("base", 0.15, metric="harm")
    measure(row.digest, 0.15, low=0.1, high=0.21, metric="harm")
    assert reasons(db) == ["floor"]
    measure(row.digest, 0.15, low=0.1, high=0.2, metric="harm")
    assert reasons(db) == []


def test_many_small_steps_down_are_stopped_by_the_anchor(
    db: Database, add_adapter: Add, demand: Demand, measure: Measure
) -> None:
    demand([rule(anchor_tolerance=0.03)])
    measure("base", 0.80)
    values = {"v1": 0.80, "v2": 0.785, "v3": 0.77, "v4": 0.755}
    for name, value in values.items():
        measure(add_adapter(name).digest, value)
    promotion.promote(db, "v1")
    registry.set_anchor(db, "assistant", "v1")
    promotion.promote(db, "v2")
    promotion.promote(db, "v3")
    assert reasons(db, "v4") == ["worse_than_anchor"]
    registry.set_anchor(db, "assistant", None)
    assert reasons(db, "v4") == []


def test_an_anchor_without_figures_blocks(
    db: Database, add_adapter: Add, add_good: Add, demand: Demand, measure: Measure
) -> None:
    add_good("v1")
    registry.set_anchor(db, "assistant", add_adapter("old").id)
    assert reasons(db) == ["missing_anchor"]


def test_too_few_cases_block_on_either_side(
    db: Database, add_adapter: Add, demand: Demand, measure: Measure
) -> None:
    demand()
    row = add_adapter("v1")
    measure("base", 0.8, n=49)
    measure(row.digest, 0.9, n=49)
    assert reasons(db) == ["too_few_candidate", "too_few_current"]


@pytest.mark.parametrize(("unscored", "expected"), [(5, []), (6, ["unscored"])])
def test_too_many_unscored_cases_block(
    db: Database, add_adapter: Add, demand: Demand, measure: Measure, unscored: int, expected: list[str]
) -> None:
    demand()
    measure("base", 0.8)
    measure(add_adapter("v1").digest, 0.9, n=100 - unscored, unscored=unscored)
    assert reasons(db) == expected


def test_figures_of_different_suite_versions_are_not_compared(
    db: Database, add_adapter: Add, demand: Demand, measure: Measure
) -> None:
    demand()
    row = add_adapter("v1")
    measure("base", 0.8)
    measure(row.digest, 0.9)
    demand(suite_hash="suite-v2")
    assert reasons(db) == ["suite_outdated"]
    measure(row.digest, 0.9, suite_hash="suite-v2")
    assert reasons(db) == ["suite_changed"]
    measure("base", 0.8, suite_hash="suite-v2")
    assert reasons(db) == []


def test_the_newest_attempt_counts_and_none_is_overwritten(
    db: Database, add_adapter: Add, demand: Demand, measure: Measure
) -> None:
    demand([rule(), rule(metric="stops")])
    row = add_adapter("v1")
    for subject in ("base", row.digest):
        both = [
            EvalResultRow(
                subject=subject, base_digest="sha256:" + "b" * 64, suite="quality", suite_hash="suite-v1",
                metric=metric, value=0.8, low=0.7, high=0.9, n=100, unscored=0,
            )
            for metric in ("accuracy", "stops")
        ]  # fmt: skip
        assert evals.insert_results(db, both) == 1
    assert reasons(db) == []
    assert measure(row.digest, 0.1) == 2
    # The second attempt left "stops" out: what the first said of it no longer counts.
    assert reasons(db) == ["worse_than_current", "missing_candidate"]
    with db.transaction() as connection:
        kept = connection.execute(b"SELECT count(*) AS n FROM train.eval_result").fetchone()
    assert kept == {"n": 5}


def test_results_of_another_base_model_do_not_count(
    db: Database, add_adapter: Add, demand: Demand, measure: Measure
) -> None:
    demand()
    row = add_adapter("v1")
    measure("base", 0.8, base_digest="sha256:other")
    measure(row.digest, 0.9, base_digest="sha256:other")
    assert reasons(db) == ["missing_candidate", "missing_current"]


def test_an_endpoints_own_rule_stands_before_the_rule_for_all(
    db: Database, add_good: Add, demand: Demand
) -> None:
    add_good("v1")
    evals.set_metric(db, rule(min_n=1000, endpoint="assistant"))
    assert reasons(db) == ["too_few_candidate", "too_few_current"]
    assert [found.min_n for found in evals.metrics(db, "assistant")] == [1000]
    assert [found.min_n for found in evals.metrics(db, "elsewhere")] == [50]


def test_current_defaults_to_prod_and_an_optional_metric_may_be_missing(
    db: Database, add_good: Add, measure: Measure
) -> None:
    first = add_good("v1")
    measure(first.digest, 0.95)
    promotion.promote(db, "v1")
    add_good("v2")
    assert reasons(db, "v2") == ["worse_than_current"]
    evals.set_metric(db, rule(metric="style", required=False))
    measure(first.digest, 0.85)
    assert reasons(db, "v2") == []


def test_cases_are_kept_and_their_prompts_held_out(db: Database, endpoint: str) -> None:
    result = EvalResultRow(
        subject="base", base_digest="sha256:b", suite="quality", suite_hash="h", metric="m",
        value=1.0, low=None, high=None, n=1, unscored=1,
    )  # fmt: skip
    cases = [
        EvalCaseRow(
            case_id=str(number), prompt_hash=f"hash-{number}", completion="a\x00b", finish_reason="stop",
            scores={"m": None},
        )
        for number in range(2)
    ]  # fmt: skip
    assert evals.insert_results(db, [result], cases) == 1
    assert evals.insert_results(db, [result], cases) == 2
    assert evals.held_out(db) == ("hash-0", "hash-1")
    with pytest.raises(ValueError, match="one subject"):
        evals.insert_results(db, [])


def test_changes_of_the_gate_are_audited(db: Database, add_adapter: Add, demand: Demand) -> None:
    demand()
    demand()
    evals.set_metric(db, rule(tolerance=0.5))
    registry.set_anchor(db, "assistant", add_adapter("v1").id)
    story = [(event.action, event.subject) for event in audit.events(db)]
    assert story == [
        ("gate.anchor", "assistant"),
        ("adapter.registered", "v1"),
        ("gate.rule", "quality/accuracy"),
        ("gate.rule", "quality/accuracy"),
    ]
    change = audit.events(db)[2].detail
    assert (change["from"]["tolerance"], change["to"]["tolerance"]) == (0.02, 0.5)
    assert audit.verify(db) == []
