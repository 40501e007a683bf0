"""What it takes to draw the tokens of a step, by kind of sampling and number of rows: in torch, and natively.

    python -m bench.sampling --model FOLDER [--rows 1 32] [--threads 2]

On random logits of a language model's spread over that model's vocabulary. Torch has one thread, as in an
engine with the native backend, whose own draws use the threads of its steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from bench.report import markdown
from engine import read_spec
from engine.native.model import NativeModel
from engine.records import SampledRow, SamplingParams, ScheduledSeq
from engine.sampler import sample
from engine.scores import Scores, ranked
from engine.token_mask import mask_of

SPREAD = 3.0
REPEATS = 20
KINDS = {
    "greedy": SamplingParams(1, temperature=0.0),
    "greedy, 5 logprobs": SamplingParams(1, temperature=0.0, logprobs=5),
    "temperature": SamplingParams(1, temperature=0.7),
    "temperature, 5 logprobs": SamplingParams(1, temperature=0.7, logprobs=5),
    "top_p 0.9": SamplingParams(1, temperature=0.7, top_p=0.9),
    "top_k 50": SamplingParams(1, temperature=0.7, top_k=50),
    "top_k 50, top_p 0.9": SamplingParams(1, temperature=0.7, top_k=50, top_p=0.9),
    "min_p 0.05": SamplingParams(1, temperature=0.7, min_p=0.05),
    "penalties": SamplingParams(1, temperature=0.7, presence_penalty=0.5, repetition_penalty=1.1),
    "half of the tokens allowed": SamplingParams(1, temperature=0.7, allowed_token_ids=(0,)),
}

Draw = Callable[[Scores, Sequence[ScheduledSeq]], list[SampledRow]]


def milliseconds(draw: Draw, params: SamplingParams, rows: int, vocab: int) -> float:
    """Of one step, the best of several."""
    scores = ranked(torch.randn(rows, vocab, generator=torch.Generator().manual_seed(rows)) * SPREAD)
    allowed = None if params.allowed_token_ids is None else mask_of(range(0, vocab, 2), vocab)
    seqs = [_row(number, params, allowed) for number in range(rows)]
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        draw(scores, seqs)
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def _row(number: int, params: SamplingParams, allowed: bytes | None) -> ScheduledSeq:
    return ScheduledSeq(
        seq_id=number,
        token_ids=list(range(300)),
        prompt_len=200,
        start=0,
        count=1,
        block_table=[0],
        adapter_slot=0,
        samples=True,
        sampling=params,
        seed=number,
        allowed=allowed,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    spec = read_spec(arguments.model)
    model = NativeModel(spec, torch.bfloat16, 1, max_rank=1, threads=arguments.threads)
    draws: dict[str, Draw] = {"torch": sample, "native": model.sample}
    columns = [(draw, rows, name) for rows in arguments.rows for name, draw in draws.items()]
    table = [
        [kind, *(f"{milliseconds(draw, params, rows, spec.vocab_size):.2f}" for draw, rows, _ in columns)]
        for kind, params in KINDS.items()
    ]
    print(markdown(["ms a step", *(f"{rows} rows, {name}" for _, rows, name in columns)], table))


if __name__ == "__main__":
    main()
