"""What the stages compute by themselves: names, shares and reasons."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from db.rows import ArmFigures, CanaryStatus
from noria.demo.prompts import Prompt
from noria.demo.stages.canary import split_figures
from noria.demo.stages.swap import override_reason
from noria.demo.stages.train import next_id
from noria.demo.traffic import Answer
from noria.demo.users import Ask, Reader


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([], "assistant-v1"),
        (["assistant-v1"], "assistant-v2"),
        (["assistant-v9", "assistant-v10", "other-v40", "assistant-v3-old"], "assistant-v11"),
    ],
)
def test_each_run_names_a_new_adapter(taken: list[str], expected: str) -> None:
    assert next_id(taken) == expected


def answer(user: str, variant: str) -> Answer:
    reader = Reader(user, rates=1.0, regenerates=0.0, edits=0.0, comments=0.0)
    figures: dict[str, Any] = {"fingerprints": (), "text": "", "finish_reason": "stop", "tokens": 1}
    return Answer(Ask(reader, Prompt("p", "?")), "id", "base", variant, first_s=0.1, total_s=0.2, **figures)


def test_the_split_counts_readers_and_requests_apart() -> None:
    figures = split_figures(
        [
            answer("a", "canary"),
            answer("a", "canary"),
            answer("b", "base"),
            answer("c", "base"),
            answer("d", "prod"),
        ]
    )
    assert figures["users"] == {"canary": 1, "control": 3}
    assert figures["requests"] == {"canary": 2, "control": 3}
    assert figures["share"] == 0.25


def status(verdict: Any) -> CanaryStatus:
    arm = ArmFigures(
        adapter_id=None,
        configured_pct=20.0,
        users=1,
        requests=1,
        rated=1,
        raters=1,
        up_rate=1.0,
        variance=None,
        rating_rate=1.0,
        regenerate_rate=0.0,
        error_rate=0.0,
    )
    return CanaryStatus(
        endpoint="assistant",
        experiment="1",
        candidate=arm,
        control=arm,
        since=datetime.now(UTC),
        difference=None,
        low=None,
        high=None,
        margin=0.05,
        alpha=0.05,
        ratio_p=None,
        verdict=verdict,
        reason="24 of 100 raters",
        horizon_raters=76,
    )


@pytest.mark.parametrize("verdict", ["superior", "non-inferior"])
def test_a_verdict_that_allows_promotion_needs_no_reason(verdict: str) -> None:
    assert override_reason(status(verdict)) is None


def test_an_inconclusive_verdict_is_named_in_the_recorded_reason() -> None:
    reason = override_reason(status("inconclusive"))
    assert reason is not None
    assert "inconclusive" in reason
    assert "24 of 100 raters" in reason
