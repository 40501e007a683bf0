"""The runs of one subject under one load, each on a machine at rest, with a probe of it taken just before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.figures import Figures, medians
from bench.loads import Load
from bench.probe import bandwidth_gb_s
from bench.settling import settle

PROBE_MB = 256


@dataclass(slots=True)
class Measured:
    """subject: a server's name, or the engine. probes: GB/s that reading memory gave, one for each run."""

    subject: str
    load: Load
    runs: list[Figures] = field(default_factory=list)
    probes: list[float] = field(default_factory=list)

    def take(self, run: Callable[[], Figures]) -> None:
        """Let the machine come to rest, probe it, then run."""
        settle()
        self.probes.append(bandwidth_gb_s(PROBE_MB))
        self.runs.append(run())

    @property
    def median(self) -> Figures:
        return medians(self.runs)

    def as_dict(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "load": asdict(self.load),
            "median": asdict(self.median),
            "runs": [asdict(run) for run in self.runs],
            "probes_gb_s": self.probes,
        }
