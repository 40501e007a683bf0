"""Training: from a frozen snapshot to a candidate in the registry, by way of a process of its own.

    validate -> run row -> trainer process (loss curve) -> check -> store -> close run -> register

The run row is the fence: closing it succeeds once, so a run that was given up cannot publish. This module
never imports torch; how a method trains is pipeline/methods' affair.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from db import datasets, registry, runs
from db.database import Database
from db.errors import DbError, NotFound
from db.rows import RunRow
from lora.format import read_adapter
from lora.store import AdapterStore
from pipeline.errors import AdapterIdTaken, AlteredSnapshot, BadDataset
from pipeline.job import Job, Limits, LoraOptions
from pipeline.methods import get_method
from pipeline.process import trainer_process
from pipeline.progress import TrainProgress
from pipeline.run_record import ProgressCallback, RunRecord

__all__ = ["BaseModel", "ProgressCallback", "TrainParams", "TrainProgress", "TrainResult", "train"]

PACKAGES = ("torch", "transformers", "trl", "peft")
ADAPTER = "adapter"
"""Where the trainer process leaves the adapter, under the run's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """The model the adapter is for: its registered name, its folder, its content digest."""

    name: str
    folder: str | Path
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainParams:
    """One training. `work_dir` is scratch space: each run leaves a folder there for inspection."""

    endpoint: str
    snapshot_id: str
    adapter_id: str
    base: BaseModel
    work_dir: Path
    method: str = "kto"
    options: Mapping[str, Any] = field(default_factory=dict)
    lora: LoraOptions = field(default_factory=LoraOptions)
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    threads: int | None = None
    """CPU threads; None: as many as the machine has."""
    nice: int = 5
    parent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """What a finished run made. `losses` holds (step, loss)."""

    run_id: str
    adapter_id: str
    digest: str
    bytes: int
    seconds: float
    steps: int
    n_in: int
    n_dropped: int
    n_trained: int
    n_desirable: int
    n_undesirable: int
    first_loss: float
    last_loss: float
    losses: tuple[tuple[int, float], ...]


def train(
    db: Database, store: AdapterStore, params: TrainParams, progress: ProgressCallback | None = None
) -> TrainResult:
    """Train, store and register; blocks until done.

    Raises: PipelineError when the run is refused or fails, lora.errors.LoraError when its adapter is not one,
    db.errors.DbError. Whatever ends a run early, Ctrl-C included, ends the process and fails the row.
    """
    method = get_method(params.method)
    options = method.parse(params.options)
    rows = _load(db, params)
    method.check(rows, options, params.limits)
    run = runs.start_run(
        db,
        endpoint=params.endpoint,
        adapter_id=params.adapter_id,
        method=params.method,
        snapshot_id=params.snapshot_id,
        base_model=params.base.name,
        base_digest=params.base.digest,
        parent=params.parent,
        params=_recorded(params, options),
        versions={name: version(name) for name in PACKAGES},
    )
    try:
        return _run(db, store, params, run, rows, progress or _silent)
    except BaseException as error:  # Ctrl-C as well: a row left open would look like a run that goes on
        with suppress(DbError):
            runs.fail_run(db, run.id, f"{type(error).__name__}: {error}")
        raise


def _load(db: Database, params: TrainParams) -> list[dict[str, Any]]:
    """The snapshot's rows as the trainer reads them. Raises: AdapterIdTaken, AlteredSnapshot, BadDataset."""
    with suppress(NotFound):
        registry.adapter(db, params.adapter_id)
        raise AdapterIdTaken(params.adapter_id)
    snapshot = datasets.show(db, params.snapshot_id)
    if (snapshot.endpoint, snapshot.method) != (params.endpoint, params.method):
        raise BadDataset(
            f"snapshot {snapshot.id} is for {snapshot.method} on endpoint {snapshot.endpoint!r}; "
            f"asked for {params.method} on {params.endpoint!r}"
        )
    if not datasets.verify(db, params.snapshot_id):
        raise AlteredSnapshot(params.snapshot_id)
    return [{"id": item.payload_hash, **item.payload} for item in datasets.rows(db, params.snapshot_id)]


def _recorded(params: TrainParams, options: Any) -> dict[str, Any]:
    return {
        "options": asdict(options),
        "lora": asdict(params.lora),
        "limits": asdict(params.limits),
        "seed": params.seed,
        "reference": "base",
        "parent_semantics": "replace",
    }


def _run(
    db: Database,
    store: AdapterStore,
    params: TrainParams,
    run: RunRow,
    rows: list[dict[str, Any]],
    progress: ProgressCallback,
) -> TrainResult:
    folder = (params.work_dir / run.id).resolve()
    folder.mkdir(parents=True)
    rows_file, job_file = folder / "rows.jsonl", folder / "job.json"
    rows_file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    threads = params.threads or os.cpu_count() or 1
    _job(params, run, folder, rows_file, threads).write(job_file)
    record = RunRecord(db, run.id, progress)
    with trainer_process(job_file, folder / "trainer.log", threads) as events:
        for event in events:
            record.take(event)
    return _publish(db, store, params, run, folder / ADAPTER, record)


def _job(params: TrainParams, run: RunRow, folder: Path, rows_file: Path, threads: int) -> Job:
    return Job(
        run_id=run.id,
        method=params.method,
        options=params.options,
        base_name=params.base.name,
        base_digest=params.base.digest,
        base_folder=str(Path(params.base.folder).resolve()),
        rows_file=str(rows_file),
        output_folder=str(folder),
        seed=params.seed,
        threads=threads,
        nice=params.nice,
        lora=params.lora,
        limits=params.limits,
    )


def _publish(
    db: Database, store: AdapterStore, params: TrainParams, run: RunRow, folder: Path, record: RunRecord
) -> TrainResult:
    adapter = read_adapter(folder)
    digest = store.put(folder)
    runs.finish_run(db, run.id, adapter_digest=digest, figures=record.figures)
    registry.register_adapter(
        db,
        id=params.adapter_id,
        digest=digest,
        base_model=params.base.name,
        endpoint=params.endpoint,
        store_uri=f"store:{digest}",
        config=adapter.config.canonical(),
        size_bytes=adapter.bytes,
        parent=params.parent,
        run_id=run.id,
    )
    counts = ("seconds", "steps", "n_in", "n_dropped", "n_trained", "n_desirable", "n_undesirable")
    return TrainResult(
        run_id=run.id,
        adapter_id=params.adapter_id,
        digest=digest,
        bytes=adapter.bytes,
        first_loss=record.losses[0][1],
        last_loss=record.losses[-1][1],
        losses=tuple(record.losses),
        **{name: record.figures[name] for name in counts},
    )


def _silent(progress: TrainProgress) -> None:
    """The progress callback of a caller that wants none."""
