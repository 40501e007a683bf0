"""The verdict's rule over given figures."""

from __future__ import annotations

import pytest

from db.canary import horizon, judge
from db.rows import ArmFigures


def arm(raters: int, variance: float | None = 0.2) -> ArmFigures:
    return ArmFigures(
        adapter_id=None, configured_pct=50, users=raters, requests=raters, rated=raters, raters=raters,
        up_rate=0.5 if raters else None, variance=variance if raters > 1 else None, rating_rate=1.0,
        regenerate_rate=0.0, error_rate=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("difference", "half", "verdict"),
    [
        (0.2, 0.1, "superior"),
        (0.0, 0.04, "non-inferior"),
        (-0.03, 0.01, "non-inferior"),
        (-0.3, 0.1, "worse"),
        (0.0, 0.05, "inconclusive"),
        (0.1, 0.2, "inconclusive"),
        (None, None, "inconclusive"),
        (float("nan"), float("nan"), "inconclusive"),
    ],
)
def test_verdicts(difference: float | None, half: float | None, verdict: str) -> None:
    assert judge(arm(500), arm(500), difference, half, 0.4, 0.05, 100)[0] == verdict


def test_too_few_raters_or_a_wrong_ratio_silence_the_verdict() -> None:
    assert judge(arm(99), arm(500), 0.5, 0.1, 0.4, 0.05, 100)[0] == "inconclusive"
    assert judge(arm(500), arm(500), 0.5, 0.1, 0.0009, 0.05, 100)[0] == "inconclusive"
    assert judge(arm(500), arm(500), 0.5, 0.1, None, 0.05, 100)[0] == "superior"


def test_the_horizon_shrinks_as_raters_come() -> None:
    before, after = horizon(arm(0), arm(0), 0.05, 0.05, 100), horizon(arm(300), arm(300), 0.05, 0.05, 100)
    assert before is not None
    assert after is not None
    assert before > after > 0
    assert horizon(arm(10**6), arm(10**6), 0.05, 0.05, 100) == 0
    assert horizon(arm(500), arm(500), 0.0, 0.05, 100) is None
