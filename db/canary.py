"""What a running canary shows: figures of both arms and a verdict that may be asked for at any time.

The unit is the user: a user's score is his mean over his rated answers, by the arm he was dealt. The
verdict reads, it never acts; without enough ratings it is `inconclusive`, which promotes nothing.
"""

from typing import Any

from db.database import Database
from db.errors import NotFound
from db.query import load
from db.registry import adapter, endpoint
from db.rows import ArmFigures, CanaryStatus, Verdict
from db.sequential import difference_margin, raters_needed

_Q = load("canary")

# Below this p-value the users were not dealt as configured, and nothing else can be believed.
RATIO_ALARM_P = 0.001
# Variance of a thumb before any is known: that of a fair coin, the largest there is.
UNKNOWN_VARIANCE = 0.25


def status(
    db: Database, adapter_id: str, *, margin: float = 0.05, alpha: float = 0.05, min_raters: int = 100
) -> CanaryStatus:
    """Return the figures and the verdict of a running canary against the prod (or base model) beside it.

    Args:
        margin: the loss in the share of thumbs up that still counts as no worse.
        alpha: chance of a false verdict over all looks together.
        min_raters: raters each arm must have before any verdict; the interval is asymptotic.

    Raises:
        NotFound: no such adapter, or it is no canary now.
    """
    row = adapter(db, adapter_id)
    if row.status != "canary" or row.endpoint is None:
        raise NotFound(f"adapter {adapter_id!r} is {row.status}, not canary")
    place = endpoint(db, row.endpoint)
    with db.transaction() as connection:
        found = connection.execute(_Q["figures"], {"adapter_id": adapter_id}).fetchall()
        ratio = connection.execute(_Q["ratio_p"], {"adapter_id": adapter_id}).fetchone()
    by_arm = {figures["arm"]: figures for figures in found}
    if set(by_arm) != {"candidate", "control"}:
        raise NotFound(f"adapter {adapter_id!r} is no canary any more")
    candidate, control = _figures(by_arm["candidate"]), _figures(by_arm["control"])
    ratio_p = None if ratio is None else ratio["p"]
    difference, half = _interval(candidate, control, alpha)
    verdict, reason = judge(candidate, control, difference, half, ratio_p, margin, min_raters)
    return CanaryStatus(
        endpoint=place.name,
        experiment=place.experiment,
        candidate=candidate,
        control=control,
        since=by_arm["candidate"]["since"],
        difference=difference,
        low=None if difference is None or half is None else difference - half,
        high=None if difference is None or half is None else difference + half,
        margin=margin,
        alpha=alpha,
        ratio_p=ratio_p,
        verdict=verdict,
        reason=reason,
        horizon_raters=horizon(candidate, control, margin, alpha, min_raters),
    )


def judge(
    candidate: ArmFigures,
    control: ArmFigures,
    difference: float | None,
    half: float | None,
    ratio_p: float | None,
    margin: float,
    min_raters: int,
) -> tuple[Verdict, str]:
    """Return the verdict and the sentence that explains it."""
    if ratio_p is not None and ratio_p < RATIO_ALARM_P:
        return "inconclusive", f"users were not dealt as configured (p = {ratio_p:.2g}): find out why first"
    fewest = min(candidate.raters, control.raters)
    if fewest < min_raters or difference is None or half is None:
        return "inconclusive", (
            f"{candidate.raters} raters of the candidate and {control.raters} of the control, "
            f"at least {min_raters} each are wanted"
        )
    span = (
        f"difference in the share of thumbs up between {difference - half:+.3f} and {difference + half:+.3f}"
    )
    if difference - half > 0:
        return "superior", span
    if difference - half > -margin:
        return "non-inferior", f"{span}, within the margin of {margin:g}"
    if difference + half < 0:
        return "worse", span
    return "inconclusive", f"{span}, too wide for the margin of {margin:g}"


def horizon(
    candidate: ArmFigures, control: ArmFigures, margin: float, alpha: float, min_raters: int
) -> int | None:
    """Return how many more raters each arm needs for a verdict if the arms are in truth equal."""
    variances = [
        UNKNOWN_VARIANCE if arm.variance is None or arm.raters < min_raters else arm.variance
        for arm in (candidate, control)
    ]
    needed = raters_needed(sum(variances), margin, alpha)
    if needed is None:
        return None
    return max(0, max(needed, min_raters) - min(candidate.raters, control.raters))


def _interval(candidate: ArmFigures, control: ArmFigures, alpha: float) -> tuple[float | None, float | None]:
    if candidate.up_rate is None or control.up_rate is None:
        return None, None
    difference = candidate.up_rate - control.up_rate
    if candidate.variance is None or control.variance is None:
        return difference, None
    half = difference_margin(candidate.raters, candidate.variance, control.raters, control.variance, alpha)
    return difference, half


def _figures(row: dict[str, Any]) -> ArmFigures:
    return ArmFigures(**{name: value for name, value in row.items() if name not in ("arm", "since")})
