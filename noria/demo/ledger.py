"""What the demonstration writes down: each stage with its time, its outcome and its figures.

The ledger knows no stage; it turns what stages report into a table for people and a JSON file for programs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from noria.demo.errors import StageFailed


@dataclass(slots=True)
class StageRecord:
    """One stage. `figures` holds plain JSON values, `headline` the sentence for the table."""

    name: str
    ok: bool = False
    seconds: float = 0.0
    headline: str = ""
    figures: dict[str, Any] = field(default_factory=dict)

    def require(self, holds: bool, otherwise: str) -> None:
        """Raise StageFailed unless `holds`."""
        if not holds:
            raise StageFailed(otherwise)


@dataclass(frozen=True, slots=True)
class Interval:
    """A measured value with its confidence bounds and the number of cases behind it."""

    value: float
    low: float
    high: float
    n: int

    def above(self, other: Interval) -> bool:
        """Whether the whole interval lies above the other one."""
        return self.low > other.high

    def __str__(self) -> str:
        return f"{self.value:.0%} [{self.low:.0%}, {self.high:.0%}] n={self.n}"


@dataclass(slots=True)
class Ledger:
    """Everything one run of the demonstration reports."""

    console: Console
    stages: list[StageRecord] = field(default_factory=list)
    behaviour: dict[str, Interval] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """snapshot_hash, adapter_id, adapter_digest, canary_split, promotion_event."""

    @contextmanager
    def stage(self, name: str, title: str) -> Iterator[StageRecord]:
        """Time a stage; it counts as done only when the block ends without an exception."""
        record = StageRecord(name)
        self.stages.append(record)
        self.console.rule(f"[bold]{len(self.stages)}. {title}", align="left")
        started = time.monotonic()
        try:
            yield record
            record.ok = True
        except BaseException as error:
            record.headline = _reason(error)
            raise
        finally:
            record.seconds = time.monotonic() - started

    @property
    def ok(self) -> bool:
        """Whether there was a stage and all of them did what they say."""
        return bool(self.stages) and all(stage.ok for stage in self.stages)

    def summary(self) -> dict[str, Any]:
        """The content of summary.json; a fact that was never reached is null."""
        known = ("snapshot_hash", "adapter_id", "adapter_digest", "canary_split", "promotion_event")
        return {
            "ok": self.ok,
            "seconds": round(sum(stage.seconds for stage in self.stages), 1),
            "stages": [asdict(stage) | {"seconds": round(stage.seconds, 1)} for stage in self.stages],
            "behaviour": {name: asdict(interval) for name, interval in self.behaviour.items()},
        } | {name: self.facts.get(name) for name in known}

    def write(self, path: Path) -> None:
        """Replace the file in one step, so that a reader never sees half of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".json.new")
        draft.write_text(json.dumps(self.summary(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(draft, path)

    def table(self) -> Table:
        """The stages as a table, one line each."""
        table = Table(
            "", "stage", "time", "what it did", title="noria: one turn of the wheel", title_justify="left"
        )
        for number, stage in enumerate(self.stages, start=1):
            mark = "[green]ok" if stage.ok else "[red]failed"
            table.add_row(str(number), stage.name, f"{stage.seconds:.0f} s", f"{mark}[/] {stage.headline}")
        return table


def _reason(error: BaseException) -> str:
    """What went wrong first, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def pairs(title: str, figures: Mapping[str, object]) -> Table:
    """A two-column table of figures."""
    table = Table(title, "", title_justify="left")
    for name, value in figures.items():
        table.add_row(name, str(value))
    return table
