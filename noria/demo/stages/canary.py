"""Stage 6: a fifth of the readers meets the candidate; online figures with their honest width."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from db import registry
from db.rows import AdapterRow, CanaryStatus
from lora.registry import bucket
from noria.demo import feedback
from noria.demo.landing import feedback_landed, requests_landed
from noria.demo.ledger import StageRecord
from noria.demo.probe import Probe
from noria.demo.prompts import traffic_prompts
from noria.demo.sizes import CANARY_PERCENT, CANARY_READERS, CANARY_RETURNING, ENDPOINT, SEED
from noria.demo.stages.bring_up import Platform
from noria.demo.stages.rate import reactions
from noria.demo.stages.replay import stream_all
from noria.demo.traffic import Answer
from noria.demo.users import Ask, assign, cast
from pipeline import canary as pipeline_canary


class Split:
    """Who belongs to the canary, computed as the gateway and the database compute it."""

    def __init__(self, platform: Platform, adapter_id: str) -> None:
        row = registry.adapter(platform.db, adapter_id)
        endpoints = {endpoint.name: endpoint for endpoint in registry.snapshot(platform.db).endpoints}
        self._experiment = endpoints[ENDPOINT].experiment
        start = row.canary_start or 0
        self._buckets = range(start, start + round(row.traffic_pct * 100))

    def holds(self, user: str) -> bool:
        """Whether the user is dealt to the canary."""
        return bucket(ENDPOINT, self._experiment, user) in self._buckets

    def first(self, inside: bool, count: int, prefix: str) -> list[str]:
        """The first `count` names of a series that belong to the canary, or do not."""
        names: list[str] = []
        number = 0
        while len(names) < count:
            number += 1
            name = f"{prefix}-{number:03d}"
            if self.holds(name) == inside:
                names.append(name)
        return names


def canary(platform: Platform, adapter: AdapterRow, stage: StageRecord, console: Console) -> CanaryStatus:
    """Start the canary, send readers, and report the split, both arms and the verdict with its horizon."""
    pipeline_canary.start(platform.db, adapter.id, CANARY_PERCENT)
    split = Split(platform, adapter.id)
    with Probe(platform.url, ENDPOINT) as probe:
        took = probe.until(split.first(True, 1, "scout")[0], adapter.id)
    console.print(f"  {adapter.id} answers {CANARY_PERCENT:g} % of the readers, after {took:.2f} s")
    answers = stream_all(platform, _asks(), console, "answers")
    rated = reactions(answers)
    sent = feedback.send(platform.url, rated)
    requests_landed(platform.db, answers)
    feedback_landed(platform.db, rated)
    status = pipeline_canary.status(platform.db, adapter.id)
    stage.figures |= {
        "started_after_s": round(took, 2),
        "split": split_figures(answers),
        "feedback": dict(sent),
    }
    stage.figures |= _online(status)
    console.print(_table(status))
    console.print(f"  verdict: [bold]{status.verdict}[/] ({status.reason})")
    console.print(f"  horizon: {_horizon(status)}")
    _check(stage, split, answers, adapter.id, status)
    share = stage.figures["split"]["share"]
    stage.headline = f"{share:.0%} of {CANARY_READERS} readers on {adapter.id}; verdict {status.verdict}"
    return status


def _asks() -> list[Ask]:
    readers = cast(CANARY_READERS, SEED, "visitor")
    prompts = list(reversed(traffic_prompts()))[: CANARY_READERS + CANARY_RETURNING]
    return assign(readers, prompts, SEED)


def split_figures(answers: list[Answer]) -> dict[str, Any]:
    """How readers and requests fell to the two variants."""
    users = {answer.ask.reader.name for answer in answers}
    canary_users = {answer.ask.reader.name for answer in answers if answer.variant == "canary"}
    canary_requests = sum(answer.variant == "canary" for answer in answers)
    return {
        "configured": CANARY_PERCENT / 100,
        "share": round(len(canary_users) / len(users), 4),
        "users": {"canary": len(canary_users), "control": len(users) - len(canary_users)},
        "requests": {"canary": canary_requests, "control": len(answers) - canary_requests},
    }


def _check(
    stage: StageRecord, split: Split, answers: list[Answer], adapter_id: str, status: CanaryStatus
) -> None:
    strayed = [
        answer.ask.reader.name
        for answer in answers
        if answer.adapter != (adapter_id if split.holds(answer.ask.reader.name) else "base")
    ]
    stage.figures["strayed"] = strayed
    stage.require(not strayed, f"answered by the wrong version: {', '.join(strayed)}")
    counted = status.candidate.requests + status.control.requests
    stage.require(counted == len(answers), f"the online figures count {counted} of {len(answers)} requests")
    stage.require(status.verdict != "worse", f"the candidate is worse online: {status.reason}")


def _online(status: CanaryStatus) -> dict[str, Any]:
    return {
        "candidate": asdict(status.candidate),
        "control": asdict(status.control),
        "difference": status.difference,
        "low": status.low,
        "high": status.high,
        "verdict": status.verdict,
        "reason": status.reason,
        "horizon_raters": status.horizon_raters,
    }


def _horizon(status: CanaryStatus) -> str:
    if status.horizon_raters is None:
        return "cannot be told yet"
    return f"{status.horizon_raters} more raters on each side to settle a margin of {status.margin:.0%}"


def _table(status: CanaryStatus) -> Table:
    table = Table("online figures", "candidate", "control", title_justify="left")
    arms = (asdict(status.candidate), asdict(status.control))
    for name in arms[0]:
        cells = (f"{arm[name]:.3f}" if isinstance(arm[name], float) else str(arm[name]) for arm in arms)
        table.add_row(name, *cells)
    return table
