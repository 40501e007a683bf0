"""What HTTP costs: a running server beside an engine of this process on the same model, in alternation.

    python -m bench.overhead http://127.0.0.1:8400#smollm2-135m --model FOLDER [--load 16:128/128]

One of the two is idle while the other works. The client, whose time counts for the server, is this process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path

from bench.client import Target, offer, parse_target
from bench.figures import Figures, summarise
from bench.inprocess import drive
from bench.loads import LOWEST_ID, Load, make_prompts, parse_load
from bench.measured import Measured
from bench.report import markdown, short, write_json
from engine import Engine, EngineConfig, SamplingParams

LOADS = ("1:128/128", "16:128/128", "32:128/128")


def pair(engine: Engine, target: Target, load: Load, rounds: int) -> tuple[Measured, Measured]:
    """The engine's runs and the server's. Raises NoFigures."""
    alone, served = Measured("engine", load), Measured(target.name, load)

    def in_process() -> Figures:
        return summarise(drive(engine, load, make_prompts(load, time.time_ns()), [], lambda: None))

    def over_http() -> Figures:
        prompts = make_prompts(load, time.time_ns())
        return summarise(asyncio.run(offer(target, load, prompts, lambda: None)))

    for _ in range(rounds):
        alone.take(in_process)
        served.take(over_http)
    return alone, served


def row(alone: Measured, served: Measured) -> list[str]:
    """Both medians, the server's part of the engine's rate, and what HTTP adds to a token's time."""
    engine, server = alone.median, served.median
    part = server.output_tok_s / engine.output_tok_s
    added = server.tpot_p50_ms - engine.tpot_p50_ms
    return [alone.load.label, short(engine), short(server), f"{part:.3f}", f"{added:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("server", help="URL#MODEL")
    parser.add_argument("--model", type=Path, required=True, help="the folder that the server serves")
    parser.add_argument("--load", nargs="+", default=list(LOADS), help="STREAMS:PROMPT/OUTPUT")
    parser.add_argument("--per-stream", type=int, default=2, help="requests of each stream in a run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    target = parse_target(f"server={arguments.server}")
    engine = Engine(EngineConfig(model=arguments.model, threads=len(os.sched_getaffinity(0))))
    engine.generate([[LOWEST_ID] * 16], SamplingParams(max_tokens=8, temperature=0.0))
    pairs = [
        pair(engine, target, parse_load(word, arguments.per_stream), arguments.rounds)
        for word in arguments.load
    ]
    rows = [row(*measured) for measured in pairs]
    print(markdown(["load (in/out)", "engine alone", "through HTTP", "part", "added ms a token"], rows))
    if arguments.json:
        write_json(arguments.json, {"pairs": [[each.as_dict() for each in both] for both in pairs]})


if __name__ == "__main__":
    main()
