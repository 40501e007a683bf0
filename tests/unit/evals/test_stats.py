"""Intervals against published or independently computed values."""

import math

import pytest

from evals.stats import mean_interval, t_quantile, wilson


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_the_published_bounds(successes: int, n: int, low: float, high: float) -> None:
    interval = wilson(successes, n)
    assert interval.value == successes / n
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


def test_wilson_of_all_successes_reaches_one_and_not_beyond() -> None:
    interval = wilson(20, 20)
    assert interval.high == 1.0
    assert interval.low == pytest.approx(0.8389, abs=5e-5)


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_counts_that_are_none(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match=f"successes={successes}, n={n}"):
        wilson(successes, n)


@pytest.mark.parametrize(
    ("df", "value"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (9, 2.26216), (30, 2.04227), (120, 1.97993)]
)
def test_t_quantile_gives_the_tabled_values(df: int, value: float) -> None:
    assert t_quantile(0.975, df) == pytest.approx(value, abs=5e-5)


def test_mean_interval_of_known_values() -> None:
    interval = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    margin = 2.776445 * math.sqrt(2.5 / 5)
    assert interval.value == 3.0
    assert interval.n == 5
    assert interval.low == pytest.approx(3 - margin, abs=1e-5)
    assert interval.high == pytest.approx(3 + margin, abs=1e-5)


def test_mean_of_one_value_has_no_bounds() -> None:
    interval = mean_interval([4.0])
    assert (interval.value, interval.low, interval.high) == (4.0, -math.inf, math.inf)
