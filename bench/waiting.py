"""Step time of one engine while requests wait and after many have finished: neither may matter.

    python -m bench.waiting --model FOLDER

Prints the median step of 16 running requests with nothing waiting, with 200 waiting, and with 200 waiting
after 500 requests have come and gone.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path

from engine import Engine, EngineConfig, Request, SamplingParams

RUNNING = 16
STEPS = 60


def request(name: str, tokens: int, draw: random.Random) -> Request:
    prompt = tuple(draw.randrange(1_000, 30_000) for _ in range(32))
    return Request(
        id=name, prompt=prompt, sampling=SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    )


def steady_step_ms(engine: Engine) -> float:
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        engine.step()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[STEPS // 4 :])


def drain(engine: Engine, names: list[str]) -> None:
    for name in names:
        engine.abort(name)
    while engine.has_work:
        engine.step()


def measure(engine: Engine, waiting: int, label: str) -> None:
    draw = random.Random(7)
    names = [f"{label}-{index}" for index in range(RUNNING + waiting)]
    for name in names:
        engine.add(request(name, 512, draw))
    for _ in range(8):
        engine.step()
    print(f"{label}: {steady_step_ms(engine):.2f} ms a step, {engine.stats().waiting} waiting")
    drain(engine, names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    arguments = parser.parse_args()
    engine = Engine(EngineConfig(model=arguments.model, max_num_seqs=RUNNING))
    measure(engine, 0, "nothing waits")
    measure(engine, 200, "200 wait")
    draw = random.Random(8)
    for index in range(500):
        engine.add(request(f"short-{index}", 1, draw))
    while engine.has_work:
        engine.step()
    measure(engine, 200, "200 wait, 700 finished before")


if __name__ == "__main__":
    main()
