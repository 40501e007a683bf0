"""Milliseconds of one engine step: decode at several batch sizes and prefill, native beside reference.

    python -m bench.step --model FOLDER [--dtype bfloat16] [--rounds 5] [--with native int8]

int8 is the native backend with weights in int8, int8-cache with keys and values, int8-both with both. The
backends alternate within each round, so a slow phase of the machine hits all. Beside each figure stands what
the machine gave in the same round: bandwidth for decode, bf16 products for prefill. What adapters cost is
told as ratios to the same model with none bound, in alternation too.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from bench.adapters import random_adapter
from bench.probe import bandwidth_gb_s, matmul_gflop_s
from engine import SamplingParams, read_spec
from engine.backends import StepModel
from engine.config import Form, blocks_for
from engine.dtypes import DTYPES
from engine.native.model import NativeModel
from engine.ports import PreparedAdapter
from engine.records import ScheduledSeq
from engine.reference import ReferenceModel
from engine.scores import Scores

BLOCKS = 2112
RANKS = (8, 16, 8, 16, 8, 16, 8, 16, 1, 64)  # of the adapters in the slots from 1 on, on all linear layers
EIGHT = range(1, 9)
MIXED = (9, 1, 10, 1)  # slots of ranks 1, 8 and 64
MAX_RANK = 64
# Weights and cache of the subjects beside the reference.
NATIVE: Mapping[str, tuple[Form, Form]] = {
    "native": ("model", "model"),
    "int8": ("int8", "model"),
    "int8-cache": ("model", "int8"),
    "int8-both": ("int8", "int8"),
}
CONTEXT = 192  # tokens before the one that a decode step computes
LONG = 2048  # the same where attention weighs more than the products
GREEDY = SamplingParams(max_tokens=8, temperature=0.0)

Step = Callable[[Sequence[ScheduledSeq]], Scores]


def sequences(count: int, start: int, length: int, slots: Sequence[int] = (0,)) -> list[ScheduledSeq]:
    """`count` sequences that compute positions start .. length - 1, tokens and blocks of their own.

    They take the `slots` in turn.
    """
    draw, blocks = random.Random(7), blocks_for(length)
    return [
        ScheduledSeq(
            seq_id=i,
            token_ids=[draw.randrange(1_000, 30_000) for _ in range(length)],
            prompt_len=length,
            start=start,
            count=length - start,
            block_table=list(range(i * blocks, (i + 1) * blocks)),
            adapter_slot=slots[i % len(slots)],
            samples=True,
            sampling=GREEDY,
            seed=0,
        )
        for i in range(count)
    ]


def once(step: Step, seqs: Sequence[ScheduledSeq], repeats: int) -> float:
    """Milliseconds of the fastest of `repeats` runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        step(seqs)
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def measure(name: str, backends: Mapping[str, Step], seqs: Sequence[ScheduledSeq], rounds: int) -> None:
    """Print the medians over `rounds`, and the probe that belongs to the kind of step."""
    prefill = seqs[0].count > 1
    times: dict[str, list[float]] = {backend: [] for backend in backends}
    probes = []
    for _ in range(rounds):
        for backend, step in backends.items():
            times[backend].append(once(step, seqs, 2 if prefill else 5))
        probes.append(matmul_gflop_s() if prefill else bandwidth_gb_s(256))
    cells = ", ".join(f"{backend} {statistics.median(found):.1f} ms" for backend, found in times.items())
    unit = "GFLOP/s" if prefill else "GB/s"
    print(f"{name}: {cells} (probe {statistics.median(probes):.0f} {unit})", flush=True)


def compare(rows: int, model: StepModel, prepared: Sequence[PreparedAdapter], rounds: int) -> None:
    """Print what adapters cost: the median over `rounds` of a decode step beside the bare model's."""
    cases = {"bound, unused": (0,), "all one": (2,), "eight": EIGHT, "ranks 1, 8, 64": MIXED}
    bare, ratios = [], {name: list[float]() for name in cases}
    for _ in range(rounds):
        for slot in range(len(prepared)):
            model.unbind_adapter(slot + 1)
        bare.append(once(model.scores, sequences(rows, CONTEXT, CONTEXT + 1), 5))
        for slot, adapter in enumerate(prepared, start=1):
            model.bind_adapter(slot, adapter)
        for name, slots in cases.items():
            seqs = sequences(rows, CONTEXT, CONTEXT + 1, slots)
            ratios[name].append(once(model.scores, seqs, 5) / bare[-1])
    cells = ", ".join(f"{name} x {statistics.median(found):.3f}" for name, found in ratios.items())
    print(f"adapters, decode {rows}: bare {statistics.median(bare):.1f} ms, {cells}", flush=True)


def open_model(subject: str, folder: Path, dtype: torch.dtype) -> StepModel:
    """The subject, its weights read."""
    spec = read_spec(folder)
    model: StepModel
    if subject == "reference":
        model = ReferenceModel(folder, spec, dtype, BLOCKS, MAX_RANK)
    else:
        weights, kv_cache = NATIVE[subject]
        model = NativeModel(
            spec,
            dtype,
            BLOCKS,
            max_rank=MAX_RANK,
            threads=torch.get_num_threads(),
            weights=weights,
            kv_cache=kv_cache,
        )
        model.load(folder)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--dtype", default="bfloat16", choices=list(DTYPES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--with", dest="subjects", nargs="+", choices=[*NATIVE, "reference"], default=["native", "reference"]
    )
    arguments = parser.parse_args()
    dtype = DTYPES[arguments.dtype]
    models = {name: open_model(name, arguments.model, dtype) for name in arguments.subjects}
    backends: dict[str, Step] = {name: model.scores for name, model in models.items()}
    with torch.inference_mode():
        for rows in (1, 4, 16, 32):
            measure(f"decode {rows}", backends, sequences(rows, CONTEXT, CONTEXT + 1), arguments.rounds)
        for rows in (1, 16):
            seqs = sequences(rows, LONG, LONG + 1)
            measure(f"decode {rows}, context {LONG}", backends, seqs, arguments.rounds)
        for length in (512, 1024):
            measure(f"prefill {length}", backends, sequences(1, 0, length), arguments.rounds)
        spec = read_spec(arguments.model)
        for name, model in models.items():
            print(f"{name}:")
            drawn = enumerate(RANKS, start=1)
            prepared = [model.prepare_adapter(random_adapter(spec, rank, slot)) for slot, rank in drawn]
            for rows in (1, 16):
                compare(rows, model, prepared, arguments.rounds)
            measure(
                "prefill 512, adapter", {name: model.scores}, sequences(1, 0, 512, (2,)), arguments.rounds
            )


if __name__ == "__main__":
    main()
