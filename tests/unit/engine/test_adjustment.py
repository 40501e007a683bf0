"""Rows of logits as tokens are drawn from them, against the definitions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.adjustment import adjusted, is_adjusted
from engine.records import ScheduledSeq
from engine.sampler import sample
from engine.sampling import SamplingParams
from engine.scores import ranked
from engine.token_mask import mask_of

VOCAB = 50


def row(prompt: list[int] | None = None, outputs: tuple[int, ...] = (), **values: Any) -> ScheduledSeq:
    changes = {name: values.pop(name) for name in ("banned_ids", "allowed", "seed") if name in values}
    prompt = prompt or [1]
    whole = ScheduledSeq(
        seq_id=0,
        token_ids=[*prompt, *outputs],
        prompt_len=len(prompt),
        start=0,
        count=1,
        block_table=[0],
        adapter_slot=0,
        samples=True,
        sampling=SamplingParams(max_tokens=9, **values),
        seed=0,
    )
    return replace(whole, **changes)


def random_logits() -> Tensor:
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(0)) * 3


@pytest.mark.parametrize("outputs", [(), (7,), (7, 7, 3, 9)])
def test_penalties_equal_their_definitions(outputs: tuple[int, ...]) -> None:
    prompt, logits = [2, 2, 9], random_logits()
    values = {"repetition_penalty": 1.7, "presence_penalty": 0.4, "frequency_penalty": -0.3}
    got = adjusted(logits, row(prompt, outputs, **values))
    want, counts = logits.tolist(), Counter(outputs)
    for token in {*prompt, *outputs}:
        want[token] = want[token] / 1.7 if want[token] > 0 else want[token] * 1.7
    for token, count in counts.items():
        want[token] -= 0.4 + -0.3 * count
    torch.testing.assert_close(got, torch.tensor(want))


def test_nothing_is_copied_where_nothing_is_asked() -> None:
    logits = random_logits()
    assert adjusted(logits, row(temperature=0.8, top_p=0.5, logprobs=2)) is logits


def test_a_bias_is_added_before_penalties() -> None:
    logits = random_logits()
    got = adjusted(logits, row([4], logit_bias=((4, 2.5), (9, -100.0)), repetition_penalty=2.0))
    biased = float(logits[4]) + 2.5
    assert float(got[4]) == pytest.approx(biased / 2 if biased > 0 else biased * 2)
    assert float(got[9]) == pytest.approx(float(logits[9]) - 100)
    others = [token for token in range(VOCAB) if token not in (4, 9)]
    assert torch.equal(got[others], logits[others])


def test_only_allowed_tokens_are_left_and_a_bias_brings_none_back() -> None:
    seq = row(allowed=mask_of([3, 8, 40], VOCAB), banned_ids=(8,), logit_bias=((5, 100.0), (8, 100.0)))
    kept = adjusted(random_logits(), seq).isfinite().nonzero().flatten().tolist()
    assert kept == [3, 40]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "asked",
    [
        {"logit_bias": ((7, 100.0),)},
        {"allowed": mask_of([7], VOCAB)},
        {"banned_ids": tuple(token for token in range(VOCAB) if token != 7)},
    ],
)
def test_what_is_asked_decides_the_token(asked: dict[str, Any], temperature: float) -> None:
    seq = row(temperature=temperature, logprobs=0, **asked)
    assert is_adjusted(seq)
    (got,) = sample(ranked(random_logits()[None]), [seq])
    assert got.token_id == 7
    assert got.logprob is not None
    # What is reported is what the model said.
    assert got.logprob.logprob == pytest.approx(float(random_logits().log_softmax(-1)[7]))


def test_a_row_whose_allowed_tokens_are_all_banned_fails_alone() -> None:
    seqs = [row(allowed=mask_of([7], VOCAB), banned_ids=(7,)), row(allowed=mask_of([7], VOCAB))]
    got = sample(ranked(random_logits().expand(2, VOCAB).contiguous()), seqs)
    assert "no token" in str(got[0].error)
    assert (got[1].token_id, got[1].error) == (7, None)


def test_rows_draw_alike_alone_and_beside_others() -> None:
    logits = torch.randn(9, VOCAB, generator=torch.Generator().manual_seed(1))
    kinds: list[dict[str, Any]] = [
        {"logit_bias": ((3, 2.0), (9, -4.0)), "top_p": 0.8},
        {"allowed": mask_of(range(0, VOCAB, 3), VOCAB)},
        {"banned_ids": (1, 2, 3)},
    ]
    seqs = [row(seed=place, **kinds[place % 3]) for place in range(9)]
    together = [each.token_id for each in sample(ranked(logits), seqs)]
    alone = [sample(ranked(logits[place : place + 1]), [seqs[place]])[0].token_id for place in range(9)]
    assert together == alone
