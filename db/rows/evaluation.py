"""Rows of evaluation: the rules of the gate, results and cases."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalMetricRow:
    """What the gate demands of one metric.

    `floor` bounds the confidence bound on the bad side (low when higher is better, else high).
    `tolerance` is the largest step for the worse against the current version, `anchor_tolerance`
    against the endpoint's anchor (None: the same as `tolerance`). `endpoint` None holds for all.
    """

    suite: str
    metric: str
    direction: Literal["higher", "lower"] = "higher"
    floor: float | None = None
    tolerance: float = 0.0
    anchor_tolerance: float | None = None
    min_n: int = 1
    max_unscored: float = 0.05
    required: bool = True
    endpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResultRow:
    """`subject` is an adapter digest or "base"; `unscored` counts cases without a usable score.

    `attempt` is given by the database when the result is stored (0 before).
    """

    subject: str
    base_digest: str
    suite: str
    suite_hash: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    unscored: int
    attempt: int = 0
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalCaseRow:
    """One answered case; `scores` maps a metric to its score, None where it could not be scored."""

    case_id: str
    prompt_hash: str
    completion: str
    finish_reason: str
    scores: Mapping[str, float | None] = field(default_factory=dict)
