"""Decode throughput of the engine beside `transformers` generate: same model, dtype, prompts and process.

    python -m bench.decode --model FOLDER [--dtype bfloat16] [--rounds 3]

Greedy, 128 tokens in and 128 out, every prompt different. The two alternate within each round, so a slow
phase of the machine hits both; the medians and their ratio are printed with a bandwidth probe.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from bench.probe import bandwidth_gb_s
from engine import Engine, EngineConfig, SamplingParams

PROMPT_TOKENS = 128
OUTPUT_TOKENS = 128


def prompts(count: int, seed: int) -> list[list[int]]:
    """Random token ids, so that no prefix is shared."""
    draw = random.Random(seed)
    return [[draw.randrange(1_000, 30_000) for _ in range(PROMPT_TOKENS)] for _ in range(count)]


def engine_runner(folder: Path, dtype: str) -> Callable[[list[list[int]]], None]:
    engine = Engine(EngineConfig(model=folder, dtype=dtype))  # type: ignore[arg-type]
    sampling = SamplingParams(max_tokens=OUTPUT_TOKENS, temperature=0.0, ignore_eos=True)

    def run(batch: list[list[int]]) -> None:
        answers = engine.generate(batch, sampling)
        assert all(len(answer) == OUTPUT_TOKENS for answer in answers)

    return run


def transformers_runner(folder: Path, dtype: str, threads: int) -> Callable[[list[list[int]]], None]:
    """The engine leaves torch one thread; transformers gets its own number for each run."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))

    def run(batch: list[list[int]]) -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        with torch.inference_mode():
            answer = model.generate(
                torch.tensor(batch),
                min_new_tokens=OUTPUT_TOKENS,
                max_new_tokens=OUTPUT_TOKENS,
                do_sample=False,
            )
        torch.set_num_threads(before)
        assert answer.shape[1] == PROMPT_TOKENS + OUTPUT_TOKENS

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16])
    arguments = parser.parse_args()
    threads = torch.get_num_threads()
    runners = {
        "noria engine": engine_runner(arguments.model, arguments.dtype),
        "transformers": transformers_runner(arguments.model, arguments.dtype, threads),
    }
    for streams in arguments.streams:
        rates: dict[str, list[float]] = {name: [] for name in runners}
        for turn in range(arguments.rounds):
            batch = prompts(streams, seed=turn * 100 + streams)
            for name, run in runners.items():
                start = time.perf_counter()
                run(batch)
                rates[name].append(streams * OUTPUT_TOKENS / (time.perf_counter() - start))
        medians = {name: statistics.median(values) for name, values in rates.items()}
        ours, theirs = medians.values()
        cells = ", ".join(f"{name} {rate:.1f} tok/s" for name, rate in medians.items())
        print(f"{streams} streams: {cells}, ratio {ours / theirs:.2f}, probe {bandwidth_gb_s():.0f} GB/s")


if __name__ == "__main__":
    main()
