"""The confidence sequence: values of its formula, and its promise under daily looks."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from db.sequential import difference_margin, margin, raters_needed


def test_the_formula() -> None:
    rho2 = (-2 * math.log(0.05) + math.log(-2 * math.log(0.05)) + 1) / 500
    inner = 1000 * 0.42 * rho2 + 1
    expected = math.sqrt(inner / (1000**2 * rho2) * math.log(inner / 0.05**2))
    assert margin(1000, 0.42, 0.05) == pytest.approx(expected)


@pytest.mark.parametrize(("points", "raters"), [(0.10, 450), (0.05, 1600), (0.03, 4600)])
def test_known_needs_of_raters(points: float, raters: int) -> None:
    # Half-widths that a variance of 0.42 for the difference reaches, within a tenth.
    assert raters_needed(0.42, points, 0.05) == pytest.approx(raters, rel=0.35)


def test_the_need_is_the_least_that_suffices() -> None:
    needed = raters_needed(0.5, 0.05, 0.05)
    assert needed is not None
    assert margin(needed, 0.5, 0.05) <= 0.05 < margin(needed - 1, 0.5, 0.05)


def test_no_number_of_raters_makes_the_width_zero() -> None:
    assert raters_needed(0.5, 0.0, 0.05) is None


def test_unequal_arms_count_by_the_smaller_one() -> None:
    assert difference_margin(100, 0.2, 100, 0.2, 0.05) == pytest.approx(margin(100, 0.4, 0.05))
    assert difference_margin(100, 0.2, 10_000, 0.2, 0.05) < difference_margin(100, 0.2, 100, 0.2, 0.05)


def test_arms_that_agree_in_everything_still_have_a_width() -> None:
    assert 0 < difference_margin(100, 0.0, 100, 0.0, 0.05) < 0.2


def test_equal_arms_looked_at_daily_seldom_raise_an_alarm() -> None:
    chance = random.Random(11)
    alarms = 0
    runs = 300
    for _ in range(runs):
        arms: tuple[list[float], list[float]] = ([], [])
        for _day in range(14):
            for arm in arms:
                arm.extend(float(chance.random() < 0.7) for _ in range(120))
            means = [statistics.fmean(arm) for arm in arms]
            half = difference_margin(
                len(arms[0]), means[0] * (1 - means[0]), len(arms[1]), means[1] * (1 - means[1]), 0.05
            )
            if abs(means[0] - means[1]) > half:
                alarms += 1
                break
    assert alarms <= 0.05 * runs
