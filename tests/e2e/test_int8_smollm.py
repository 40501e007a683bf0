"""What eight bits change in what SmolLM2-135M says next, token after token of a few texts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine import SamplingParams, Tokenizer, read_spec
from engine.config import blocks_for
from engine.native.model import NativeModel
from engine.records import ScheduledSeq

WHEELS = """
The water wheel is one of the oldest machines. It was known to the Greeks and the Romans, and in the middle
ages thousands of mills stood along the rivers of Europe. A noria lifts water by the buckets on its rim, and
the stream itself turns it. In Hama, on the Orontes, seventeen of them still stand; the largest measures
twenty metres. Their slow groaning is heard all over the town, by day and by night.
"""
CODE = """
def mean(values: list[float]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total / len(values)


def median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return mean(
"""
SUPPORT = """
Q: I was charged twice for order 4417. What should I do?
A: I am sorry about that. Please send us the date of both charges and the last four digits of your card, and
we will refund the second one within three days.
Q: Thank you. Will I get a confirmation by mail?
A: Yes, as soon as the refund has been sent.
"""
TOKENS = 80
"""The first so many of each text."""


@pytest.fixture(scope="module")
def usual(smollm: Path) -> torch.Tensor:
    return next_tokens(smollm)


def next_tokens(folder: Path, **settings: str) -> torch.Tensor:
    """Log probabilities [positions of all texts, vocab] of the next token."""
    model = NativeModel(read_spec(folder), torch.bfloat16, 64, max_rank=8, threads=2, **settings)  # type: ignore[arg-type]
    model.load(folder)
    tokenizer, per_text = Tokenizer(folder), blocks_for(TOKENS)
    texts = [tokenizer.encode(text)[:TOKENS] for text in (WHEELS, CODE, SUPPORT)]
    found = []
    for position in range(TOKENS):
        seqs = [
            ScheduledSeq(
                seq_id=i,
                token_ids=ids,
                prompt_len=TOKENS,
                start=position,
                count=1,
                block_table=list(range(i * per_text, (i + 1) * per_text)),
                adapter_slot=0,
                samples=True,
                sampling=SamplingParams(max_tokens=1),
                seed=0,
            )
            for i, ids in enumerate(texts)
        ]
        found.append(torch.log_softmax(model.scores(seqs).logits, -1))
    return torch.cat(found)


def test_int8_weights_choose_nearly_as_the_model_does(smollm: Path, usual: torch.Tensor) -> None:
    """Mean divergence below 0.01 nats; nine of ten next tokens the same."""
    rounded = next_tokens(smollm, weights="int8")
    divergence = (usual.exp() * (usual - rounded)).sum(-1)
    assert divergence.mean() < 0.01
    assert (usual.argmax(-1) == rounded.argmax(-1)).float().mean() > 0.9
    assert not torch.equal(usual, rounded)


def test_an_int8_cache_chooses_nearly_as_the_model_does(smollm: Path, usual: torch.Tensor) -> None:
    """Mean divergence below 0.002 nats, about what rounding to bfloat16 costs."""
    rounded = next_tokens(smollm, kv_cache="int8")
    divergence = (usual.exp() * (usual - rounded)).sum(-1)
    assert divergence.mean() < 0.002
    assert (usual.argmax(-1) == rounded.argmax(-1)).float().mean() > 0.95
    assert not torch.equal(usual, rounded)
