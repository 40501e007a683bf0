"""Sampling against naive oracles, one row at a time, and rows that never feel their neighbours."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine import sampler
from engine.filters import keep_top_k, keep_top_p
from engine.records import SampledRow, ScheduledSeq
from engine.sampler import draw, filtered, uniform
from engine.sampling import SamplingParams
from engine.scores import ranked

VOCAB = 50
GREEDY = SamplingParams(max_tokens=9, temperature=0.0)


def row(params: SamplingParams = GREEDY, prompt: list[int] | None = None, **changes: Any) -> ScheduledSeq:
    prompt = prompt or [1]
    outputs = changes.pop("outputs", [])
    fields: dict[str, Any] = {
        "seq_id": 0,
        "seed": 0,
        "start": 0,
        "count": 1,
        "adapter_slot": 0,
        "block_table": [0],
    }
    fields |= {"token_ids": prompt + outputs, "prompt_len": len(prompt), "samples": True, "sampling": params}
    return ScheduledSeq(**{**fields, **changes})


def sample(logits: Tensor, seqs: list[ScheduledSeq]) -> list[SampledRow]:
    return sampler.sample(ranked(logits), seqs)


def params(**values: Any) -> SamplingParams:
    return SamplingParams(max_tokens=9, **values)


def random_logits(rows: int, vocab: int = VOCAB, seed: int = 0) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


def naive_kept(logits: list[float], p: SamplingParams, slack: float) -> set[int]:
    """Tokens left by min_p, then top_k, then top_p, from the definitions; ties at the edge are kept.

    slack moves the edges of min_p and top_p by the rounding of float32, outwards where it is positive.
    """
    top = max(logits)
    weight = {i: math.exp((x - top) / p.temperature) for i, x in enumerate(logits)}
    if p.min_p:
        weight = {i: w for i, w in weight.items() if w >= min(1.0, p.min_p * (1 - slack))}
    if p.top_k:
        edge = sorted(weight.values(), reverse=True)[: p.top_k][-1]
        weight = {i: w for i, w in weight.items() if w >= edge}
    if p.top_p == 1:
        return set(weight)
    total, kept, mass = sum(weight.values()), set[int](), 0.0
    for i, w in sorted(weight.items(), key=lambda item: -item[1]):
        if kept and mass >= (p.top_p + slack) * total:
            break
        kept.add(i)
        mass += w
    return kept


@given(
    seed=st.integers(0, 10_000),
    temperature=st.sampled_from([0.1, 0.7, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 5, 49, 50, 200]),
    top_p=st.sampled_from([1.0, 0.99, 0.5, 0.01]),
    min_p=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
)
@settings(max_examples=300)
def test_filters_keep_what_the_definitions_keep(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    wanted = params(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    logits = random_logits(3, seed=seed)
    row_logits = filtered(logits, wanted)[1]
    got = {int(i) for i in row_logits.isfinite().nonzero()}
    least, most = (naive_kept(logits[1].tolist(), wanted, slack) for slack in (-1e-5, 1e-5))
    assert least <= got <= most
    assert len(most - least) <= 3


def test_top_p_of_a_flat_distribution_needs_more_than_the_likely_tokens() -> None:
    logits = torch.zeros(2, 200_000) + torch.arange(200_000) * 1e-6
    logits[1, 7] = 50.0
    kept = keep_top_p(logits, 0.9).sum(dim=-1)
    probs = logits[0].softmax(-1).sort(descending=True).values
    assert probs[0] < 1e-5
    assert kept[0] == int((probs.cumsum(0) - probs < 0.9).sum())
    assert kept[0] > 160_000
    assert kept[1] == 1


@pytest.mark.parametrize("steps", [0, 4])
@pytest.mark.parametrize("vocab", [63, 64, 700, 4113])
def test_top_k_of_a_large_vocabulary_is_exact(vocab: int, steps: int) -> None:
    """Also where many logits are equal, or banned."""
    logits = random_logits(4, vocab, seed=vocab)
    if steps:
        logits = (logits * steps).round() / steps
    logits[2:, ::3] = -math.inf
    for top_k in (1, 2, 40, vocab // 2, vocab - 1):
        want = logits >= logits.topk(top_k, dim=-1).values[:, -1:]
        assert torch.equal(keep_top_k(logits, top_k), want)


def test_banned_tokens_are_never_chosen() -> None:
    logits = random_logits(1)
    best = int(logits.argmax())
    (greedy,) = sample(logits, [row(banned_ids=(best, VOCAB + 5))])
    assert greedy.token_id == int(logits[0].topk(2).indices[1])
    drawn = {sample(logits, [row(params(), seed=s, banned_ids=(best,))])[0].token_id for s in range(50)}
    assert best not in drawn


def test_a_row_draws_the_same_in_any_company() -> None:
    logits = random_logits(16, vocab=2000, seed=3)
    kinds = [
        params(),
        params(temperature=0.3, top_p=0.8),
        params(top_k=7),
        params(min_p=0.05, top_p=0.95, presence_penalty=0.5),
        GREEDY,
    ]
    rows = [row(kinds[i % 5], seed=i, outputs=list(range(i)), seq_id=i) for i in range(16)]
    together = [r.token_id for r in sample(logits, rows)]
    alone = [sample(logits[i : i + 1], [rows[i]])[0].token_id for i in range(16)]
    backwards = [r.token_id for r in sample(logits.flip(0), rows[::-1])][::-1]
    assert together == alone == backwards


def test_a_draw_changes_with_seed_and_with_position() -> None:
    logits = torch.zeros(1, 1000)
    by_seed = {sample(logits, [row(params(), seed=s)])[0].token_id for s in range(40)}
    by_place = {sample(logits, [row(params(), seed=5, outputs=[1] * n)])[0].token_id for n in range(40)}
    assert len(by_seed) > 30
    assert len(by_place) > 30
    assert sample(logits, [row(params(), seed=-1)]) == sample(logits, [row(params(), seed=-1)])


def test_uniforms_are_uniform_over_seeds_and_positions() -> None:
    grid = torch.tensor([[uniform(seed, n) for n in range(100)] for seed in range(-50, 50)])
    assert bool(((grid >= 0) & (grid < 1)).all())
    for flat in (grid.flatten(), grid[:, 0], grid[0]):
        assert abs(float(flat.mean()) - 0.5) < 4 * 0.289 / math.sqrt(len(flat))
    counts = torch.histc(grid, bins=20, min=0, max=1)
    assert float(((counts - 500) ** 2 / 500).sum()) < 45  # chi-square, 19 degrees: p about 0.0007


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -torch.inf]])
    uniforms = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    counts = torch.bincount(draw(logits.expand(10_000, 4), uniforms), minlength=4) / 10_000
    torch.testing.assert_close(counts, logits[0].softmax(-1), atol=2e-4, rtol=0)


def test_the_ends_of_the_uniform_never_reach_an_impossible_token() -> None:
    logits = torch.tensor([[-torch.inf, 1.0, 1.0, -torch.inf]]).expand(2, 4)
    assert draw(logits, torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)).tolist() == [1, 2]


@pytest.mark.parametrize("temperature", [1e-30, 1e-6, 1e-4, 1e30])
def test_extreme_temperatures_stay_finite(temperature: float) -> None:
    (got,) = sample(random_logits(1) * 100, [row(params(temperature=temperature))])
    assert got.error is None
    assert 0 <= got.token_id < VOCAB


def test_logprobs_are_of_the_raw_logits() -> None:
    logits = random_logits(4)
    wish = [
        params(temperature=0.2, top_k=2, presence_penalty=2.0, logprobs=3),
        replace(GREEDY, logprobs=0),
        GREEDY,
    ]
    got = sample(logits, [row(p, outputs=[4]) for p in [*wish, replace(GREEDY, logprobs=20)]])
    want = logits.log_softmax(-1)
    assert got[2].logprob is None
    for index, top in ((0, 3), (1, 0), (3, 20)):
        found = got[index].logprob
        assert found is not None
        assert found.token_id == got[index].token_id
        assert found.logprob == pytest.approx(float(want[index, found.token_id]))
        values, ids = want[index].topk(top)
        assert [i for i, _ in found.top] == ids.tolist()
        assert [x for _, x in found.top] == pytest.approx(values.tolist())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_row_that_is_not_finite_fails_alone(bad: float) -> None:
    logits = random_logits(3)
    logits[1, 5] = bad
    got = sample(logits, [row(seq_id=i, params=replace(GREEDY, logprobs=2)) for i in range(3)])
    assert [r.error is None for r in got] == [True, False, True]
    assert "not finite" in str(got[1].error)
    assert got[1].logprob is None
    assert got[0].token_id == int(logits[0].argmax())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_without_a_token_left_fails_alone(temperature: float) -> None:
    p = params(temperature=temperature)
    got = sample(random_logits(2), [row(p, banned_ids=tuple(range(VOCAB))), row(p)])
    assert got[0].error is not None
    assert got[1].error is None


def test_penalties_out_of_range_of_float32_fail_alone() -> None:
    got = sample(random_logits(2), [row(params(repetition_penalty=1e-300), prompt=[*range(VOCAB)]), row()])
    assert got[0].error is not None
    assert got[1].error is None
