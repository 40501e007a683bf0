"""Servers under the same loads, in alternation: each round asks all of them, so a slow phase hits all.

Before every run a probe reads memory; its bandwidth stands beside the figure. Two servers that are up at the
same time share the machine: a figure says what its server gives while the others idle.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from functools import partial

from bench.client import OnDone, Target, offer
from bench.figures import Figures, summarise
from bench.loads import Load, make_prompts
from bench.measured import Measured
from bench.report import markdown, short


def measure(
    targets: Sequence[Target], loads: Sequence[Load], rounds: int, on_done: OnDone
) -> list[list[Measured]]:
    """By load, then by target. Raises NoFigures."""
    for target in targets:
        _run(target, Load(streams=1, requests=1, prompt_tokens=16, output_tokens=8), on_done)
    found = [[Measured(target.name, load) for target in targets] for load in loads]
    for _ in range(rounds):
        for row, load in zip(found, loads, strict=True):
            for cell, target in zip(row, targets, strict=True):
                cell.take(partial(_run, target, load, on_done))
    return found


def requests_of(targets: int, loads: Sequence[Load], rounds: int) -> int:
    """How often `measure` calls on_done."""
    return targets * (1 + rounds * sum(load.requests for load in loads))


def _run(target: Target, load: Load, on_done: OnDone) -> Figures:
    # A prompt that was sent before would be found in the prefix cache: every run draws its own.
    prompts = make_prompts(load, seed=time.time_ns())
    return summarise(asyncio.run(offer(target, load, prompts, on_done)))


def table(found: Sequence[Sequence[Measured]]) -> str:
    """Markdown: a row for each load; the ratios are the first server's tokens a second over the others'."""
    names = [cell.subject for cell in found[0]]
    columns = ["load (in/out)", *names, *(f"{names[0]} / {name}" for name in names[1:]), "probe, GB/s"]
    return markdown(columns, [_row(cells) for cells in found])


def _row(cells: Sequence[Measured]) -> list[str]:
    first, *others = cells
    probes = [f"{statistics.median(cell.probes):.0f}" for cell in cells]
    return [
        first.load.label,
        *(short(cell.median) for cell in cells),
        *(f"{ratio(first, other):.2f}" for other in others),
        ", ".join(probes),
    ]


def ratio(one: Measured, other: Measured) -> float:
    """Median over the rounds of the quotient of their tokens a second."""
    return statistics.median(
        mine.output_tok_s / theirs.output_tok_s for mine, theirs in zip(one.runs, other.runs, strict=True)
    )
