"""What it takes to draw the tokens of a step, by kind of sampling and number of rows.

    python -m bench.sampling [--vocab 49152] [--rows 1 32]

On random logits of a language model's spread, on one thread, as in an engine with the native backend.
"""

from __future__ import annotations

import argparse
import time

import torch

from bench.report import markdown
from engine.records import SamplingParams, ScheduledSeq
from engine.sampler import sample
from engine.scores import ranked

SPREAD = 3.0
REPEATS = 10
KINDS = {
    "greedy": SamplingParams(1, temperature=0.0),
    "temperature": SamplingParams(1, temperature=0.7),
    "top_p 0.9": SamplingParams(1, temperature=0.7, top_p=0.9),
    "top_k 50": SamplingParams(1, temperature=0.7, top_k=50),
    "min_p 0.05": SamplingParams(1, temperature=0.7, min_p=0.05),
}


def milliseconds(params: SamplingParams, rows: int, vocab: int) -> float:
    """Of one step, the best of several."""
    scores = ranked(torch.randn(rows, vocab, generator=torch.Generator().manual_seed(rows)) * SPREAD)
    seqs = [_row(number, params) for number in range(rows)]
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        sample(scores, seqs)
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def _row(number: int, params: SamplingParams) -> ScheduledSeq:
    return ScheduledSeq(
        seq_id=number,
        token_ids=[1],
        prompt_len=1,
        start=0,
        count=1,
        block_table=[0],
        adapter_slot=0,
        samples=True,
        sampling=params,
        seed=number,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vocab", type=int, default=49_152)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    table = [
        [name, *(f"{milliseconds(params, rows, arguments.vocab):.2f}" for rows in arguments.rows)]
        for name, params in KINDS.items()
    ]
    print(markdown(["ms a step", *(f"{rows} rows" for rows in arguments.rows)], table))


if __name__ == "__main__":
    main()
