"""The runner: every stage in order, and an honest exit code and summary when one of them fails."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from noria.demo import runner
from noria.demo.errors import StageFailed
from noria.demo.ledger import Interval, StageRecord
from noria.settings import Settings

SNAPSHOT = SimpleNamespace(set_hash="sha256:aa")
ADAPTER = SimpleNamespace(id="assistant-v1", digest="sha256:bb")
BEHAVIOUR = {"base": Interval(0.1, 0.0, 0.2, 60), "adapter": Interval(0.8, 0.7, 0.9, 60)}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces every stage by one that only says that it ran."""
    order: list[str] = []

    def stands_in(name: str, result: Any, figures: dict[str, Any] | None = None) -> Callable[..., Any]:
        def stage(*inputs: Any) -> Any:
            order.append(name)
            (record,) = [value for value in inputs if isinstance(value, StageRecord)]
            record.figures |= figures or {}
            stacks = [value for value in inputs if isinstance(value, ExitStack)]
            for stack in stacks:
                stack.callback(order.append, "taken down")
            return result

        return stage

    monkeypatch.setattr(runner, "bring_up", stands_in("bring up", "platform"))
    monkeypatch.setattr(runner, "replay", stands_in("replay", []))
    monkeypatch.setattr(runner, "rate", stands_in("feedback", None))
    monkeypatch.setattr(runner, "train", stands_in("train", (SNAPSHOT, ADAPTER)))
    monkeypatch.setattr(runner, "evaluate", stands_in("evaluate", BEHAVIOUR))
    monkeypatch.setattr(runner, "canary", stands_in("canary", "status", {"split": {"share": 0.2}}))
    monkeypatch.setattr(runner, "swap", stands_in("promote", "answer", {"promotion_event": {"id": 7}}))
    monkeypatch.setattr(runner, "trace", stands_in("trace", None))
    return order


STAGES = ["bring up", "replay", "feedback", "train", "evaluate", "canary", "promote", "trace"]


def turn(data: Path) -> tuple[int, dict[str, Any]]:
    code = runner.run(Settings(data=data), Console(file=io.StringIO(), width=120))
    return code, json.loads((data / "demo/summary.json").read_text())


def test_all_stages_run_in_order_and_the_platform_is_taken_down(told: list[str], tmp_path: Path) -> None:
    code, summary = turn(tmp_path)
    assert code == 0
    assert told == [*STAGES, "taken down"]
    assert [stage["name"] for stage in summary["stages"]] == STAGES
    assert summary["ok"] is True
    assert summary["snapshot_hash"] == "sha256:aa"
    assert summary["adapter_digest"] == "sha256:bb"
    assert summary["canary_split"] == {"share": 0.2}
    assert summary["promotion_event"] == {"id": 7}
    assert set(summary["behaviour"]) == {"base", "adapter"}


def test_a_failed_stage_ends_the_run_with_code_1(
    told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise StageFailed("the gate is closed")

    monkeypatch.setattr(runner, "evaluate", fails)
    code, summary = turn(tmp_path)
    assert code == 1
    assert told == ["bring up", "replay", "feedback", "train", "taken down"]
    assert summary["ok"] is False
    assert summary["stages"][-1]["headline"] == "the gate is closed"
    assert summary["adapter_digest"] == "sha256:bb"
    assert summary["promotion_event"] is None


def test_a_platform_that_does_not_stop_is_a_failure(
    told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clings(_: Any, stack: ExitStack, *__: Any) -> str:
        stack.callback(lambda: (_ for _ in ()).throw(RuntimeError("still running")))
        return "platform"

    monkeypatch.setattr(runner, "bring_up", clings)
    code, _ = turn(tmp_path)
    assert code == 1
