"""The job file: all that the trainer process is told, written by the parent as JSON.

Plain frozen dataclasses, no torch: the parent stays light and the file can be read by people. Paths are
absolute. Options of a method travel as the mapping the method itself parses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipeline.errors import InvalidOption

LINEAR_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Every linear layer of a Llama-family block, named outright: nothing is left to a default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraOptions:
    """Shape of the adapter."""

    rank: int = 8
    alpha: int = 16
    target_modules: tuple[str, ...] = LINEAR_LAYERS

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise InvalidOption("lora.rank", self.rank, ">= 1")
        if self.alpha < 1:
            raise InvalidOption("lora.alpha", self.alpha, ">= 1")
        if not self.target_modules or "lm_head" in self.target_modules:
            raise InvalidOption(
                "lora.target_modules", list(self.target_modules), "linear layers, never lm_head"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run refuses."""

    min_examples: int = 32
    max_dropped: float = 0.1
    """Largest share of rows that may be dropped because their prompt fills max_length."""
    allow_one_sided: bool = False

    def __post_init__(self) -> None:
        if self.min_examples < 2:
            raise InvalidOption("limits.min_examples", self.min_examples, ">= 2")
        if not 0 <= self.max_dropped <= 1:
            raise InvalidOption("limits.max_dropped", self.max_dropped, "0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of the trainer process."""

    run_id: str
    method: str
    options: Mapping[str, Any]
    base_name: str
    base_digest: str
    base_folder: str
    rows_file: str
    output_folder: str
    seed: int
    threads: int
    nice: int
    lora: LoraOptions = field(default_factory=LoraOptions)
    limits: Limits = field(default_factory=Limits)

    def write(self, path: Path) -> None:
        """Write the job file."""
        path.write_text(json.dumps(asdict(self), indent=2, sort_keys=True) + "\n", encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Job:
        """Read a job file written by `write`."""
        content = json.loads(path.read_text(encoding="utf-8"))
        lora = content.pop("lora")
        lora["target_modules"] = tuple(lora["target_modules"])
        limits = content.pop("limits")
        return Job(**content, lora=LoraOptions(**lora), limits=Limits(**limits))
