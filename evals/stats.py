"""95 % intervals for a rate and for a mean: Wilson's score interval and Student's t interval.

Plain Python: n is a few hundred at most. It does not know what the numbers measure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

Z95 = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Interval:
    """A point estimate with its 95 % bounds, over n values."""

    value: float
    low: float
    high: float
    n: int


def wilson(successes: float, n: int, z: float = Z95) -> Interval:
    """Wilson's score interval for a rate (E. B. Wilson, JASA 22, 1927).

    Raises: ValueError when n < 1 or successes is outside 0..n.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"need 0 <= successes <= n and n >= 1, got successes={successes}, n={n}")
    rate = successes / n
    scale = 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / scale
    margin = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / scale
    low = 0.0 if successes == 0 else max(0.0, centre - margin)
    high = 1.0 if successes == n else min(1.0, centre + margin)
    return Interval(rate, low, high, n)


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's t interval for a mean; a single value has infinite bounds.

    Raises: ValueError when empty.
    """
    n = len(values)
    if n < 1:
        raise ValueError("need at least one value, got none")
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(mean, -math.inf, math.inf, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    margin = t_quantile(0.975, n - 1) * math.sqrt(variance / n)
    return Interval(mean, mean - margin, mean + margin, n)


def t_quantile(p: float, df: int) -> float:
    """Quantile of Student's t for 0.5 <= p < 1, by bisection on the distribution function (error < 1e-9)."""
    if not 0.5 <= p < 1 or df < 1:
        raise ValueError(f"need 0.5 <= p < 1 and df >= 1, got p={p}, df={df}")
    low, high = 0.0, 1.0
    while _t_cdf(high, df) < p:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if _t_cdf(middle, df) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _t_cdf(t: float, df: int) -> float:
    """P(T <= t) for t >= 0, in closed form for whole df (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    theta = math.atan(t / math.sqrt(df))
    cosine, sine = math.cos(theta), math.sin(theta)
    odd = df % 2 == 1
    term = cosine if odd else 1.0
    total = term if df > 1 else 0.0
    for k in range(3 if odd else 2, df - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    inside = 2 / math.pi * (theta + sine * total) if odd else sine * total
    return (1 + inside) / 2
