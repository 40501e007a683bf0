"""The steps of the loop as the command runs them: pipeline functions with this instance's paths and progress.

It holds no step itself; what a step does is pipeline's affair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from db import datasets, registry
from db.canonical import prompt_hash
from db.database import Database
from evals import BatchCompleter, SuiteResult, load_suite, suite_names
from lora.store import open_store
from noria import console
from noria.client_key import client_key
from noria.errors import NoriaError
from noria.settings import Settings
from pipeline.evaluation import Subject, evaluate
from pipeline.training import BaseModel, TrainParams, TrainProgress, TrainResult, train


def held_out() -> tuple[str, ...]:
    """Hashes of every evaluation prompt: none of them may train."""
    return tuple(
        sorted({prompt_hash(case.messages) for name in suite_names() for case in load_suite(name).cases})
    )


def base_of(db: Database, model: str) -> BaseModel:
    """The registered base model called `model`."""
    rows = {row.name: row for row in registry.snapshot(db).base_models}
    if model not in rows:
        raise NoriaError(
            f"no base model is called {model!r}; registered are: {', '.join(sorted(rows)) or 'none'}"
        )
    row = rows[model]
    return BaseModel(name=row.name, folder=row.folder, digest=row.digest)


def endpoint_base(db: Database, endpoint: str) -> BaseModel:
    """The base model of `endpoint`."""
    rows = {row.name: row for row in registry.snapshot(db).endpoints}
    if endpoint not in rows:
        raise NoriaError(
            f"no endpoint is called {endpoint!r}; there are: {', '.join(sorted(rows)) or 'none'}"
        )
    return base_of(db, rows[endpoint].base_model)


def train_adapter(
    settings: Settings,
    db: Database,
    endpoint: str,
    adapter_id: str,
    *,
    snapshot_id: str | None = None,
    max_steps: int | None = None,
) -> TrainResult:
    """Train on a snapshot (by default the endpoint's newest), showing progress; register the candidate."""
    base = endpoint_base(db, endpoint)
    if snapshot_id is None:
        newest = datasets.latest(db, endpoint)
        if newest is None:
            raise NoriaError(
                f"endpoint {endpoint!r} has no snapshot; run `noria dataset freeze {endpoint}` first"
            )
        snapshot_id = newest.id
    params = TrainParams(
        endpoint=endpoint,
        snapshot_id=snapshot_id,
        adapter_id=adapter_id,
        base=base,
        work_dir=settings.data / "runs" / adapter_id,
        options={} if max_steps is None else {"max_steps": max_steps},
    )
    with training_bar() as show:
        return train(db, open_store(settings.store_url, settings.s3), params, show)


class _TrainingBar:
    """Progress of a training run on one line: steps, loss, time."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("loading", total=None, loss="")

    def __call__(self, now: TrainProgress) -> None:
        loss = f"loss {now.loss:.3f}" if now.loss is not None else ""
        self._progress.update(
            self._task, description=now.stage, completed=now.step, total=now.steps or None, loss=loss
        )


@contextmanager
def training_bar() -> Iterator[_TrainingBar]:
    """A progress callback for `pipeline.training.train` that draws a bar while the block runs."""
    columns = (
        TextColumn("  {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console.out) as progress:
        yield _TrainingBar(progress)


@contextmanager
def completer(url: str, settings: Settings, db: Database) -> Iterator[BatchCompleter]:
    """A client of the served endpoint whose batches are marked as evaluation: they never train."""
    with client_key(settings, db) as key:
        client = BatchCompleter(url, api_key=key, headers={"x-noria-source": "eval"})
        try:
            yield client
        finally:
            client.close()


def evaluate_adapter(
    db: Database, client: BatchCompleter, adapter_id: str, suites: Sequence[str] | None = None
) -> dict[str, SuiteResult]:
    """Run `suites` (all by default) against an adapter by its own id and record the results."""
    row = registry.adapter(db, adapter_id)
    base = base_of(db, row.base_model)
    return _evaluate(db, client, Subject(digest=row.digest, model=row.id, base_digest=base.digest), suites)


def evaluate_base(
    db: Database, client: BatchCompleter, base: BaseModel, suites: Sequence[str] | None = None
) -> dict[str, SuiteResult]:
    """Run `suites` (all by default) against a base model and record the results."""
    return _evaluate(db, client, Subject(digest="base", model=base.name, base_digest=base.digest), suites)


def _evaluate(
    db: Database, client: BatchCompleter, subject: Subject, suites: Sequence[str] | None
) -> dict[str, SuiteResult]:
    with Progress(
        TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), console=console.out
    ) as bar:
        tasks = {
            name: bar.add_task(f"{subject.model}: {name}", total=None) for name in suites or suite_names()
        }

        def show(suite: str, done: int, total: int) -> None:
            bar.update(tasks[suite], completed=done, total=total)

        return evaluate(db, client, subject, list(tasks), progress=show)
