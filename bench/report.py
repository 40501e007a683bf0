"""Figures as people and programs read them: a Markdown table and a JSON file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.figures import Figures


def markdown(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table, one line a row."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def short(figures: Figures) -> str:
    """The three figures of a run that are compared, and how many requests failed."""
    failed = f", {figures.errors:.0f} FAILED" if figures.errors else ""
    return (
        f"{figures.output_tok_s:.1f} tok/s, TTFT {figures.ttft_p50_ms:.0f} ms, "
        f"TPOT {figures.tpot_p50_ms:.1f} ms{failed}"
    )


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    model = next(
        (line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")), "unknown"
    )
    return {"processor": model, "cores": os.cpu_count(), "load_average": list(os.getloadavg())}


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write `value` with the machine beside it; a figure that does not exist becomes null."""
    text = json.dumps(_finite({"machine": machine(), **value}), indent=2, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
