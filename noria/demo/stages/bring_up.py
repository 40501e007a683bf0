"""Stage 1: the platform comes up, and the endpoint serves its base model."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from rich.console import Console

from db import promotion, registry
from db.database import Database
from noria import instance
from noria.demo.ledger import StageRecord
from noria.demo.probe import Probe
from noria.demo.sizes import ENDPOINT
from noria.loop import base_of
from noria.settings import Settings
from pipeline.training import BaseModel


@dataclass(frozen=True, slots=True)
class Platform:
    """What the later stages need: where to ask, where to look, and what the adapters stand on."""

    settings: Settings
    url: str
    db: Database
    base: BaseModel


def bring_up(settings: Settings, stack: ExitStack, stage: StageRecord, console: Console) -> Platform:
    """Start everything; `stack` stops it again. Earlier versions of the endpoint step back first."""

    def report(line: str) -> None:
        console.print(f"  {line}")

    running = stack.enter_context(instance.running(settings, report))
    db = running.database
    base = base_of(db, settings.models[0].id)
    registry.create_endpoint(db, ENDPOINT, base.name)
    stepped_back = _step_back(db, console)
    with Probe(running.url, ENDPOINT) as probe:
        probe.until("reader-000", "base")
    console.print(f"  {running.url} serves {ENDPOINT!r} from {base.name}")
    stage.figures |= {"url": running.url, "base_model": base.name, "base_digest": base.digest}
    stage.figures["stepped_back"] = stepped_back
    stage.headline = f"PostgreSQL, Ray Serve and {base.name} up; endpoint {ENDPOINT!r}"
    return Platform(settings, running.url, db, base)


def _step_back(db: Database, console: Console) -> list[str]:
    """Retire what an earlier run left on the endpoint, so that readers meet the base model again."""
    left = [row for row in registry.snapshot(db).adapters if row.endpoint == ENDPOINT]
    stepped_back = []
    for row in left:
        if row.status == "canary":
            promotion.stop_canary(db, row.id, actor="demo")
        elif row.status == "prod":
            promotion.set_status(db, row.id, "retired", actor="demo")
        else:
            continue
        stepped_back.append(row.id)
        console.print(
            f"  {row.id} of an earlier run was {row.status} and steps back: this run starts from the base"
        )
    return stepped_back
