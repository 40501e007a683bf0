"""What a token costs each process of a running instance, in CPU time, and what the instance costs idle.

    python -m bench.cpu http://127.0.0.1:8400#smollm2-135m --data DATA [--load 16:128/128] [--idle 10]

CPU time is read from /proc before and after each load; the client is this process itself. The engine replica
is also told by thread: the step thread, the native threads beside it, the event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path

from bench.client import Target, offer, parse_target
from bench.errors import BenchError
from bench.figures import Figures, summarise
from bench.loads import Load, make_prompts, parse_load
from bench.processor import by_kind, family, kind_of, seconds, spent, threads
from bench.report import markdown, write_json

LOADS = ("1:128/128", "4:128/128", "16:128/128", "32:128/128")
LEAST_MS = 0.005
"""Kinds of processes below are added up in one line."""


def roots(data: Path) -> list[int]:
    """The process that owns a data folder, and its embedded Postgres, which is nobody's child."""
    owner = (data / "instance.lock").read_text().strip()
    if not owner:
        raise BenchError(f"no instance serves {data}")
    found = [int(owner)]
    for file in data.glob("postgres/**/postmaster.pid"):
        found.append(int(file.read_text().split()[0]))
    return found


def under_load(target: Target, load: Load, data: Path) -> tuple[Figures, dict[str, float], list[float]]:
    """Figures of one run, CPU milliseconds a token by kind of process and by thread of the engine replica."""
    prompts = make_prompts(load, seed=time.time_ns())
    before, own = seconds(family(roots(data))), time.process_time()
    engine = next((pid for pid in before if kind_of(pid) == "engine replica"), os.getpid())
    threads_before = threads(engine)
    outcomes = asyncio.run(offer(target, load, prompts, lambda: None))
    used = by_kind(spent(before, seconds(family(roots(data)))))
    used["client"] = time.process_time() - own
    by_thread = sorted(spent(threads_before, threads(engine)).values(), reverse=True)
    tokens = sum(outcome.output_tokens for outcome in outcomes)
    per_token = {kind: 1e3 * value / tokens for kind, value in used.items()}
    return summarise(outcomes), per_token, [1e3 * value / tokens for value in by_thread[:4]]


def idle(data: Path, length_s: float) -> dict[str, float]:
    """Per cent of one core by kind of process while nobody asks."""
    before = seconds(family(roots(data)))
    time.sleep(length_s)
    used = by_kind(spent(before, seconds(family(roots(data)))))
    return {kind: 100 * value / length_s for kind, value in used.items()}


def table(found: dict[str, dict[str, float]], unit: str) -> str:
    """Markdown: a row for each kind of process, a column for each run."""
    kinds = sorted({kind for used in found.values() for kind in used}, key=lambda kind: -_most(found, kind))
    shown = [kind for kind in kinds if _most(found, kind) >= LEAST_MS]
    rows = [[kind, *(f"{used.get(kind, 0.0):.3f}" for used in found.values())] for kind in shown]
    rows.append(["all", *(f"{sum(used.values()):.3f}" for used in found.values())])
    return markdown([unit, *found], rows)


def _most(found: dict[str, dict[str, float]], kind: str) -> float:
    return max(used.get(kind, 0.0) for used in found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("server", help="URL#MODEL")
    parser.add_argument("--data", type=Path, required=True, help="data folder of the instance")
    parser.add_argument("--load", nargs="+", default=list(LOADS), help="STREAMS:PROMPT/OUTPUT")
    parser.add_argument("--per-stream", type=int, default=2, help="requests of each stream")
    parser.add_argument("--idle", type=float, default=0.0, help="seconds to watch the idle instance")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    target = parse_target(f"server={arguments.server}")
    asyncio.run(
        offer(
            target,
            Load(streams=1, requests=1, output_tokens=16),
            make_prompts(Load(streams=1, requests=1), seed=time.time_ns()),
            lambda: None,
        )
    )
    found: dict[str, dict[str, float]] = {}
    for word in arguments.load:
        load = parse_load(word, arguments.per_stream)
        figures, used, by_thread = under_load(target, load, arguments.data)
        found[load.label] = used
        shares = ", ".join(f"{value:.3f}" for value in by_thread)
        print(
            f"{load.label}: {figures.output_tok_s:.1f} tok/s, TTFT {figures.ttft_p50_ms:.0f} ms, "
            f"TPOT {figures.tpot_p50_ms:.2f} ms; threads of the engine replica: {shares}"
        )
    print(table(found, "CPU ms a token"))
    if arguments.idle:
        print(table({"idle": idle(arguments.data, arguments.idle)}, "% of a core"))
    if arguments.json:
        write_json(arguments.json, {"milliseconds_a_token": found})


if __name__ == "__main__":
    main()
