"""Stage 4: consent, a frozen data set without any evaluation prompt, and a new adapter."""

from __future__ import annotations

import re
from datetime import datetime

from rich.console import Console

from db import consent, datasets, registry
from db.rows import AdapterRow, FreezeParams, SnapshotRow
from noria.demo.ledger import StageRecord, pairs
from noria.demo.sizes import ENDPOINT, SEED, TENANT
from noria.demo.stages.bring_up import Platform
from noria.loop import held_out, train_adapter
from pipeline.dataset import freeze


def train(
    platform: Platform, since: datetime, stage: StageRecord, console: Console
) -> tuple[SnapshotRow, AdapterRow]:
    """Train on what was served since `since`, and find the adapter in the registry as a candidate."""
    consent.grant(platform.db, TENANT, actor="demo")
    console.print(f"  the tenant {TENANT!r} lets its rated traffic train")
    snapshot = _freeze(platform, since, stage, console)
    adapter_id = next_id([row.id for row in registry.snapshot(platform.db).adapters])
    result = train_adapter(platform.settings, platform.db, ENDPOINT, adapter_id, snapshot_id=snapshot.id)
    adapter = registry.adapter(platform.db, adapter_id)
    stage.figures |= {
        "adapter": adapter.id,
        "digest": adapter.digest,
        "steps": result.steps,
        "trained_rows": result.n_trained,
        "dropped_rows": result.n_dropped,
        "loss": [round(result.first_loss, 4), round(result.last_loss, 4)],
        "training_s": round(result.seconds, 1),
    }
    console.print(
        f"  {adapter.id} {adapter.digest[:19]}: {result.steps} steps on {result.n_trained} rows, "
        f"loss {result.first_loss:.3f} -> {result.last_loss:.3f}"
    )
    stage.require(adapter.status == "candidate", f"{adapter.id} is {adapter.status!r}, expected 'candidate'")
    stage.require(adapter.digest == result.digest, "the registry holds another digest than the training made")
    rows = f"{snapshot.desirable} good and {snapshot.undesirable} bad answers"
    stage.headline = f"{adapter.id} on {rows}, {result.steps} steps"
    return snapshot, adapter


def _freeze(platform: Platform, since: datetime, stage: StageRecord, console: Console) -> SnapshotRow:
    params = FreezeParams(
        endpoint=ENDPOINT, tenant=TENANT, since=since, seed=SEED, held_out=held_out(), created_by="demo"
    )
    snapshot = freeze(platform.db, params)
    console.print(pairs("left after each filter", snapshot.counts))
    console.print(f"  snapshot {snapshot.id}, set hash {snapshot.set_hash}")
    stage.figures |= {
        "snapshot": snapshot.id,
        "set_hash": snapshot.set_hash,
        "rows": snapshot.rows,
        "desirable": snapshot.desirable,
        "undesirable": snapshot.undesirable,
        "counts": dict(snapshot.counts),
    }
    stage.require(
        datasets.verify(platform.db, snapshot.id), "the rows of the snapshot do not match its set hash"
    )
    return snapshot


def next_id(taken: list[str]) -> str:
    """The first free id of the series assistant-v1, assistant-v2, ..."""
    pattern = re.compile(rf"{re.escape(ENDPOINT)}-v(\d+)")
    numbers = [int(match[1]) for id in taken if (match := pattern.fullmatch(id))]
    return f"{ENDPOINT}-v{max(numbers, default=0) + 1}"
