"""From what happened to each request to the figures of a run, and from several runs to their medians.

TTFT            request sent -> first token arrives
TPOT            (last token - first token) / (tokens - 1), of one request
output tok/s    tokens of all requests / (last end - first start)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

from bench.errors import NoFigures


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request. Times are seconds of one monotonic clock.

    arrivals: of every piece of text, in order. error: None when it went well.
    """

    sent: float
    ended: float
    arrivals: tuple[float, ...] = ()
    prompt_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None

    @property
    def ttft_s(self) -> float:
        return (self.arrivals[0] if self.arrivals else self.ended) - self.sent

    @property
    def tpot_s(self) -> float | None:
        """None for a request with fewer than two tokens."""
        if self.output_tokens < 2 or not self.arrivals:
            return None
        return (self.arrivals[-1] - self.arrivals[0]) / (self.output_tokens - 1)

    @property
    def longest_gap_s(self) -> float:
        return max((later - earlier for earlier, later in pairwise(self.arrivals)), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one run, or medians of several. Token counts are means over requests."""

    requests: float
    errors: float
    prompt_tokens: float
    output_tokens: float
    wall_s: float
    output_tok_s: float
    ttft_p50_ms: float
    ttft_p95_ms: float
    ttft_p99_ms: float
    tpot_p50_ms: float
    tpot_p95_ms: float
    tpot_p99_ms: float
    duration_p50_s: float
    gap_p95_ms: float
    """Of the longest pause within each stream."""


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between the two nearest values; NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarise(outcomes: Sequence[Outcome]) -> Figures:
    """Figures of one run. Raises NoFigures, with the first reason, when no request went well."""
    good = [outcome for outcome in outcomes if outcome.error is None]
    if not good:
        reason = outcomes[0].error if outcomes else "none was sent"
        raise NoFigures(f"no request of {len(outcomes)} was answered: {reason}")
    wall = max(outcome.ended for outcome in good) - min(outcome.sent for outcome in good)
    ttft = [outcome.ttft_s * 1e3 for outcome in good]
    tpot = [outcome.tpot_s * 1e3 for outcome in good if outcome.tpot_s is not None]
    tokens = sum(outcome.output_tokens for outcome in good)
    return Figures(
        requests=len(good),
        errors=len(outcomes) - len(good),
        prompt_tokens=sum(outcome.prompt_tokens for outcome in good) / len(good),
        output_tokens=tokens / len(good),
        wall_s=wall,
        output_tok_s=tokens / wall,
        ttft_p50_ms=percentile(ttft, 50),
        ttft_p95_ms=percentile(ttft, 95),
        ttft_p99_ms=percentile(ttft, 99),
        tpot_p50_ms=percentile(tpot, 50),
        tpot_p95_ms=percentile(tpot, 95),
        tpot_p99_ms=percentile(tpot, 99),
        duration_p50_s=percentile([outcome.ended - outcome.sent for outcome in good], 50),
        gap_p95_ms=percentile([outcome.longest_gap_s * 1e3 for outcome in good], 95),
    )


def medians(runs: Sequence[Figures]) -> Figures:
    """The median of each figure over `runs`, at least one; of errors the sum, so that none is lost."""
    names = [field.name for field in fields(Figures)]
    middle = {name: statistics.median(getattr(run, name) for run in runs) for name in names}
    return Figures(**{**middle, "errors": sum(run.errors for run in runs)})
