"""The record of a running training: its events become the run's loss curve and the caller's progress."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from db import runs
from db.database import Database
from db.errors import DatabaseAway
from pipeline.progress import Event, TrainProgress

ProgressCallback = Callable[[TrainProgress], None]


class RunRecord:
    """Follows one run: figures, the loss curve in its row, the caller's progress.

    Points that could not be written while the database was away are written with the next ones.
    """

    def __init__(self, db: Database, run_id: str, progress: ProgressCallback) -> None:
        self._db, self._run_id, self._progress = db, run_id, progress
        self._unwritten: list[Event] = []
        self.figures: dict[str, Any] = {}
        self.losses: list[tuple[int, float]] = []

    def take(self, event: Event) -> None:
        """Raises: db.errors.Conflict when the run was closed by someone else."""
        figures = dict(event.figures)
        if event.name in ("rows", "done"):
            self.figures |= figures
        elif event.name == "stage":
            self._progress(TrainProgress(**figures))
        elif event.name == "step":
            self._unwritten.append(event)
            self._write()
            if figures["loss"] is not None:
                self.losses.append((figures["step"], figures["loss"]))
            self._progress(_training(figures))

    def _write(self) -> None:
        with suppress(DatabaseAway):
            while self._unwritten:
                figures = dict(self._unwritten[0].figures)
                step, steps = figures.pop("step"), figures.pop("steps")
                runs.progress(self._db, self._run_id, step, figures, total_steps=steps)
                self._unwritten.pop(0)


def _training(figures: dict[str, Any]) -> TrainProgress:
    return TrainProgress(
        stage="training",
        step=figures["step"],
        steps=figures["steps"],
        loss=figures["loss"],
        seconds_per_step=figures["seconds"],
    )
