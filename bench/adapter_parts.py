"""Milliseconds of a decode step whose rows have adapters that change more than the layers' modules.

    python -m bench.adapter_parts --model FOLDER [--dtype bfloat16] [--rounds 9]

Each subject gives some of 16 rows adapters that hold one thing and nothing else. The subjects alternate
within each round, so a slow phase of the machine hits all. Medians, and what they are of the base's.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from bench.step import BLOCKS, CONTEXT, MAX_RANK, once, sequences
from engine import AdapterWeights, LoraPair, read_spec
from engine.adapter_targets import AdapterTargets
from engine.adapter_weights import EmbeddingDelta, NormWeights, TokenRows
from engine.dtypes import DTYPES
from engine.native.model import NativeModel
from engine.records import ScheduledSeq

ROWS = 16
RANK = 16
TOKENS = 16
"""Rows of single tokens that an adapter holds."""

Make = Callable[[AdapterTargets], AdapterWeights]


def head_pair(targets: AdapterTargets) -> AdapterWeights:
    return AdapterWeights("head", {"lm_head": LoraPair(*_pair(targets.vocab, targets.hidden), 1.0)})


def own_head(targets: AdapterTargets) -> AdapterWeights:
    return AdapterWeights("own head", {}, head=torch.randn(targets.vocab, targets.hidden) * 0.02)


def norms(targets: AdapterTargets) -> AdapterWeights:
    made = {
        name: NormWeights(torch.ones(size), torch.zeros(size) if name in targets.biases else None)
        for name, size in targets.norms.items()
    }
    return AdapterWeights("norms", {}, norms=made)


def embedding(targets: AdapterTargets) -> AdapterWeights:
    b, a = reversed(_pair(targets.hidden, targets.vocab))
    return AdapterWeights("embedding", {}, embedding=EmbeddingDelta(a, b, 1.0))


def tokens(targets: AdapterTargets) -> AdapterWeights:
    rows = torch.randn(TOKENS, targets.hidden) * 0.02
    own = TokenRows(torch.arange(TOKENS) * 100 + 1_000, rows, in_head=targets.tied)
    return AdapterWeights("tokens", {}, tokens=own)


SUBJECTS: Mapping[str, tuple[Make, int, int]] = {
    "delta of the head, 4 rows, 2 adapters": (head_pair, 4, 2),
    "delta of the head, 16 rows, 8 adapters": (head_pair, 16, 8),
    "own head, 4 rows, 1 adapter": (own_head, 4, 1),
    "own head, 8 rows, 2 adapters": (own_head, 8, 2),
    "norms, 16 rows, 8 adapters": (norms, 16, 8),
    "delta of the embedding, 16 rows, 8 adapters": (embedding, 16, 8),
    "rows of 16 tokens, 16 rows, 8 adapters": (tokens, 16, 8),
}
"""What their adapters hold, how many rows have one, and how many adapters these rows have between them."""


def _pair(out: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(RANK, width) * 0.02, torch.randn(out, RANK) * 0.02


def bind_all(model: NativeModel, targets: AdapterTargets) -> dict[str, list[ScheduledSeq]]:
    """The sequences of each subject, in slots of their own; rows with an adapter lie between the others."""
    base = sequences(ROWS, CONTEXT, CONTEXT + 1)
    found, slots = {"base": base}, 0
    for name, (make, rows, adapters) in SUBJECTS.items():
        for slot in range(slots + 1, slots + adapters + 1):
            model.bind_adapter(slot, model.prepare_adapter(make(targets)))
        step = ROWS // rows
        found[name] = [
            seq if i % step else replace(seq, adapter_slot=slots + 1 + i // step % adapters)
            for i, seq in enumerate(base)
        ]
        slots += adapters
    return found


def measure(model: NativeModel, subjects: Mapping[str, Sequence[ScheduledSeq]], rounds: int) -> None:
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, seqs in subjects.items():
            times[name].append(once(model.scores, seqs, 5))
    base = statistics.median(times["base"])
    for name, found in times.items():
        median = statistics.median(found)
        print(f"{name}: {median:.2f} ms, {median / base:.3f} of the base's", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--dtype", default="bfloat16", choices=list(DTYPES))
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    spec, threads = read_spec(arguments.model), torch.get_num_threads()
    model = NativeModel(spec, DTYPES[arguments.dtype], BLOCKS, max_rank=MAX_RANK, threads=threads)
    model.load(arguments.model)
    torch.manual_seed(1)
    with torch.inference_mode():
        measure(model, bind_all(model, spec.adapter_targets), arguments.rounds)


if __name__ == "__main__":
    main()
