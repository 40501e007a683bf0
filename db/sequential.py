"""Statistics that stay valid however often one looks: the asymptotic confidence sequence.

Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas: Time-uniform central limit theory and asymptotic
confidence sequences, Annals of Statistics 52(6), 2024. Pure arithmetic; it knows no rows.
"""

import math

# The number of raters per arm at which the interval is made tightest; it is valid at any number.
TUNED_FOR = 500
FAR = 1 << 40


def margin(n: float, variance: float, alpha: float, tuned_for: int = TUNED_FOR) -> float:
    """Return the half-width of the (1 - alpha) confidence sequence of a mean of n values.

    Args:
        n: values so far, at least 1.
        variance: their sample variance.
        alpha: chance that the sequence ever leaves the true mean, in (0, 1).
        tuned_for: the n at which it is tightest.
    """
    rho2 = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha)) + 1) / tuned_for
    inner = n * variance * rho2 + 1
    return math.sqrt(inner / (n * n * rho2) * math.log(inner / (alpha * alpha)))


def difference_margin(n1: int, variance1: float, n2: int, variance2: float, alpha: float) -> float:
    """Return the half-width for the difference of two independent means."""
    n = min(n1, n2)
    return margin(n, n * (variance1 / n1 + variance2 / n2), alpha)


def raters_needed(variance: float, width: float, alpha: float) -> int | None:
    """Return the least n per arm whose half-width is within `width`; None when it is out of reach.

    Args:
        variance: of the difference of one rater of each arm, the sum of both arms' variances.
    """
    low, high = 1, 1
    while margin(high, variance, alpha) > width:
        low, high = high, high * 2
        if high > FAR:
            return None
    while low < high:
        middle = (low + high) // 2
        if margin(middle, variance, alpha) > width:
            low = middle + 1
        else:
            high = middle
    return high
