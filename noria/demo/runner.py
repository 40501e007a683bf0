"""Runs the stages in order, and tells at the end what each did.

Whatever happens, the platform is taken down again and the summary is written; a stage that fails ends the
run.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime

from rich.console import Console

from noria.demo.ledger import Ledger
from noria.demo.sizes import ENDPOINT
from noria.demo.stages.bring_up import bring_up
from noria.demo.stages.canary import canary
from noria.demo.stages.evaluate import evaluate
from noria.demo.stages.rate import rate
from noria.demo.stages.replay import replay
from noria.demo.stages.swap import swap
from noria.demo.stages.trace import trace
from noria.demo.stages.train import train
from noria.settings import Settings


def run(settings: Settings, console: Console) -> int:
    """Turn the wheel once. Exit code: 0 when every stage did what it says and all was taken down, else 1."""
    ledger = Ledger(console)
    summary = settings.data / "demo" / "summary.json"
    complete = False
    try:
        with ExitStack() as stack:
            _stages(settings, ledger, stack, console)
        complete = True
    except Exception:  # the boundary of the command: any failure becomes a failed stage and exit code 1
        console.print_exception(max_frames=8)
    finally:
        ledger.write(summary)
        console.print(ledger.table())
    for name, interval in ledger.behaviour.items():
        console.print(f"  brief answers on held-out prompts, {name}: {interval}")
    console.print(f"  summary: {summary}")
    if complete:
        console.print(f"  `noria up` now serves {ENDPOINT!r} from {ledger.facts['adapter_id']}")
    return 0 if complete else 1


def _stages(settings: Settings, ledger: Ledger, stack: ExitStack, console: Console) -> None:
    with ledger.stage("bring up", "The platform comes up") as stage:
        platform = bring_up(settings, stack, stage, console)
    since = datetime.now(UTC)
    with ledger.stage("replay", "Readers ask, answers stream") as stage:
        answers = replay(platform, stage, console)
    with ledger.stage("feedback", "Readers react") as stage:
        rate(platform, answers, stage, console)
    with ledger.stage("train", "What they liked trains an adapter") as stage:
        snapshot, adapter = train(platform, since, stage, console)
    ledger.facts |= {
        "snapshot_hash": snapshot.set_hash,
        "adapter_id": adapter.id,
        "adapter_digest": adapter.digest,
    }
    with ledger.stage("evaluate", "Base and candidate are measured") as stage:
        ledger.behaviour |= evaluate(platform, adapter, stage, console)
    with ledger.stage("canary", "A fifth of the readers meets the candidate") as stage:
        online = canary(platform, adapter, stage, console)
    ledger.facts["canary_split"] = stage.figures["split"]
    with ledger.stage("promote", "Promotion, rollback and promotion under load") as stage:
        served = swap(platform, adapter, online, stage, console)
    ledger.facts["promotion_event"] = stage.figures["promotion_event"]
    with ledger.stage("trace", "From an answer back to its training rows") as stage:
        trace(platform, served, adapter, snapshot, stage, console)
