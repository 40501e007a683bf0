"""The ledger: what it counts as done, and what it writes for people and for programs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from noria.demo.errors import StageFailed
from noria.demo.ledger import Interval, Ledger


def silent() -> Console:
    return Console(file=io.StringIO(), width=120)


def test_a_stage_that_ends_is_done_and_timed() -> None:
    ledger = Ledger(silent())
    with ledger.stage("replay", "Traffic") as stage:
        stage.figures["requests"] = 3
        stage.headline = "3 requests"
    assert ledger.ok
    assert ledger.stages[0].seconds >= 0.0


def test_a_stage_that_does_not_hold_fails_the_run() -> None:
    ledger = Ledger(silent())
    with ledger.stage("first", "First"):
        pass
    with pytest.raises(StageFailed), ledger.stage("second", "Second") as stage:
        stage.require(1 > 2, "1 is not more than 2")
    assert not ledger.ok
    assert [stage.ok for stage in ledger.stages] == [True, False]
    assert ledger.stages[1].headline == "1 is not more than 2"


def test_a_run_without_stages_is_not_done() -> None:
    assert not Ledger(silent()).ok


def test_the_summary_names_every_fact_even_before_it_is_known(tmp_path: Path) -> None:
    ledger = Ledger(silent())
    with ledger.stage("bring up", "Bring up") as stage:
        stage.figures["models"] = ["m"]
    ledger.facts["snapshot_hash"] = "sha256:00"
    ledger.behaviour["base"] = Interval(0.1, 0.05, 0.2, 60)
    ledger.behaviour["adapter"] = Interval(0.9, 0.8, 0.95, 60)
    ledger.write(tmp_path / "demo/summary.json")
    written = json.loads((tmp_path / "demo/summary.json").read_text())
    assert written["ok"] is True
    assert written["stages"][0] == {
        "name": "bring up",
        "ok": True,
        "seconds": written["stages"][0]["seconds"],
        "headline": "",
        "figures": {"models": ["m"]},
    }
    assert written["behaviour"]["base"] == {"value": 0.1, "low": 0.05, "high": 0.2, "n": 60}
    assert written["snapshot_hash"] == "sha256:00"
    assert written["adapter_digest"] is None
    assert written["canary_split"] is None
    assert written["promotion_event"] is None
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["summary.json"]


@pytest.mark.parametrize(
    ("low", "better"), [(0.21, True), (0.2, False), (0.1, False)], ids=["clear", "touching", "overlapping"]
)
def test_better_means_outside_the_bounds_of_the_other(low: float, better: bool) -> None:
    assert Interval(0.5, low, 0.9, 60).above(Interval(0.1, 0.05, 0.2, 60)) is better


def test_a_failure_inside_a_group_of_tasks_is_named() -> None:
    ledger = Ledger(silent())
    with pytest.raises(ExceptionGroup), ledger.stage("replay", "Traffic"):
        raise ExceptionGroup("tasks", [ExceptionGroup("inner", [ValueError("connection lost")])])
    assert ledger.stages[0].headline == "connection lost"


def test_the_table_shows_what_failed_and_why() -> None:
    console = silent()
    ledger = Ledger(console)
    with pytest.raises(StageFailed), ledger.stage("canary", "Canary") as stage:
        stage.require(False, "the split is off")
    console.print(ledger.table())
    printed = console.file.getvalue()  # type: ignore[attr-defined]  # the console of this test writes to StringIO
    assert "the split is off" in printed
    assert "failed" in printed
