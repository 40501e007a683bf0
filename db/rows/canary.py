"""Figures of a running canary."""

from dataclasses import dataclass
from datetime import datetime

from db.rows.words import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigures:
    """One side of a canary, by assignment. `up_rate` is the mean over raters of each one's share of +1.

    `raters` are users with at least one rated answer; rates are over requests and None without any.
    """

    adapter_id: str | None
    configured_pct: float
    users: int
    requests: int
    rated: int
    raters: int
    up_rate: float | None
    variance: float | None
    rating_rate: float | None
    regenerate_rate: float | None
    error_rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryStatus:
    """`low`..`high` is the always-valid interval of candidate minus control up_rate.

    `horizon_raters`: raters each arm still needs before the interval can settle within `margin`
    when the arms are equal (None: cannot be told yet). `ratio_p` is the sample ratio check.
    """

    endpoint: str
    experiment: str
    candidate: ArmFigures
    control: ArmFigures
    since: datetime
    difference: float | None
    low: float | None
    high: float | None
    margin: float
    alpha: float
    ratio_p: float | None
    verdict: Verdict
    reason: str
    horizon_raters: int | None
