"""Stage 7: promotion by one UPDATE while answers stream, rollback by SQL, and promotion again."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from db import registry
from db.rows import AdapterRow, CanaryStatus
from noria.demo import psql
from noria.demo.ledger import StageRecord
from noria.demo.probe import Probe
from noria.demo.prompts import Prompt
from noria.demo.sizes import CONCURRENCY, ENDPOINT, LONG_STREAMS, LONG_TOKENS, MAX_TOKENS
from noria.demo.stages.bring_up import Platform
from noria.demo.stages.canary import Split
from noria.demo.traffic import Answer, Asking, ask_all, ask_once, connect
from noria.demo.users import Ask, Reader

LONG_PROMPT = Prompt("long", "Tell me a long story about a water wheel and the village that lives by it.")
SHORT_PROMPT = Prompt("short", "Why does a water wheel turn?")


@dataclass(frozen=True, slots=True)
class Crossing:
    """Streams that were open at the promotion; `open_after` were so still when the new version answered."""

    answers: list[Answer]
    seconds: float
    open_after: int


def swap(
    platform: Platform, adapter: AdapterRow, online: CanaryStatus, stage: StageRecord, console: Console
) -> Answer:
    """Promote under load, roll back, promote again. Returns an answer of the promoted version."""
    holders = Split(platform, adapter.id).first(False, LONG_STREAMS, "holder")
    reason = override_reason(online)
    crossing = asyncio.run(_cross(platform, adapter.id, holders, psql.promotion(adapter.id, reason), console))
    _check_crossing(stage, crossing, console)
    event = _promotion_event(platform, adapter.id)
    stage.require(
        event["reason"] == reason, f"the event records the reason {event['reason']!r}, not {reason!r}"
    )
    with Probe(platform.url, ENDPOINT) as probe:
        psql.type_in(platform.db.url, psql.rollback(ENDPOINT), console)
        stage.figures["rollback_s"] = round(probe.until(holders[0], "base"), 3)
        console.print(f"  the base model answers again after {stage.figures['rollback_s']} s")
        psql.type_in(platform.db.url, psql.promotion(adapter.id, None), console)
        stage.figures["second_promotion_s"] = round(probe.until(holders[0], adapter.id), 3)
        console.print(f"  {adapter.id} answers again after {stage.figures['second_promotion_s']} s")
    last = asyncio.run(_ask_again(platform, holders))
    stage.require(
        {answer.adapter for answer in last} == {adapter.id}, "not every reader gets the promoted version"
    )
    stage.figures["promotion_event"] = event
    stage.headline = (
        f"{len(crossing.answers)} streams kept their version, new ones changed in {crossing.seconds:.2f} s; "
        f"rolled back in {stage.figures['rollback_s']} s, promoted again"
    )
    return last[0]


def override_reason(online: CanaryStatus) -> str | None:
    """Why to promote although the online verdict does not allow it by itself; None when it does."""
    if online.verdict in ("superior", "non-inferior"):
        return None
    return f"offline gate passed; the online verdict is {online.verdict} ({online.reason})"


async def _cross(
    platform: Platform, adapter_id: str, holders: list[str], statement: str, console: Console
) -> Crossing:
    asking = Asking(ENDPOINT, LONG_TOKENS, extra={"min_tokens": LONG_TOKENS})
    begun = [asyncio.Event() for _ in holders]
    async with connect(platform.url) as client, asyncio.TaskGroup() as group:
        streams = [
            group.create_task(ask_once(client, asking, Ask(_reader(name), LONG_PROMPT), event.set))
            for name, event in zip(holders, begun, strict=True)
        ]
        await asyncio.gather(*(event.wait() for event in begun))
        started = time.monotonic()
        await asyncio.to_thread(psql.type_in, platform.db.url, statement, console)
        with Probe(platform.url, ENDPOINT) as probe:
            await asyncio.to_thread(probe.until, holders[0], adapter_id)
        seconds = time.monotonic() - started
        open_after = sum(not stream.done() for stream in streams)
    return Crossing([stream.result() for stream in streams], seconds, open_after)


def _check_crossing(stage: StageRecord, crossing: Crossing, console: Console) -> None:
    versions = sorted({fingerprint for answer in crossing.answers for fingerprint in answer.fingerprints})
    stage.figures |= {
        "streams": len(crossing.answers),
        "open_when_the_new_version_answered": crossing.open_after,
        "versions_in_flight": versions,
        "promotion_s": round(crossing.seconds, 3),
    }
    console.print(
        f"  the new version answered after {crossing.seconds:.2f} s, with {crossing.open_after} of "
        f"{len(crossing.answers)} older streams still open; they ended as {', '.join(versions)}"
    )
    stage.require(crossing.open_after > 0, "no stream was open any more when the new version answered")
    stage.require(
        {answer.adapter for answer in crossing.answers} == {"base"}, "a stream began on a new version"
    )
    stage.require(len(versions) == 1, f"streams in flight named several versions: {', '.join(versions)}")


async def _ask_again(platform: Platform, holders: list[str]) -> list[Answer]:
    asks = [Ask(_reader(name), SHORT_PROMPT) for name in holders]
    async with connect(platform.url) as client:
        return await ask_all(client, Asking(ENDPOINT, MAX_TOKENS), asks, CONCURRENCY, lambda answer: None)


def _promotion_event(platform: Platform, adapter_id: str) -> dict[str, Any]:
    events = registry.events(platform.db, adapter_id=adapter_id)
    newest = next(event for event in events if event.to_status == "prod")
    return asdict(newest) | {"at": newest.at.isoformat()}


def _reader(name: str) -> Reader:
    return Reader(name, rates=0.0, regenerates=0.0, edits=0.0, comments=0.0)
