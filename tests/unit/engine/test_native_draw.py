"""Tokens as the library draws them, beside those of the sampler in torch for the same uniform numbers."""

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
from engine.adjustment import adjusted
from engine.native.levels import Level
from engine.records import SampledRow, ScheduledSeq
from engine.sampling import SamplingParams
from engine.scores import ranked
from engine.token_mask import mask_of
from tests.unit.engine.native_models import KeptLogits, Shape, native, save_drawn

VOCABS = (63, 1041, 5000)
SLACK = 2e-6
"""Of probabilities: what float32 loses in their sums."""
LEVELS: tuple[Level, ...] = ("best", "avx2")
Models = dict[tuple[int, Level], KeptLogits]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    root = tmp_path_factory.mktemp("draw")
    folders = {vocab: save_drawn(Shape(vocab=vocab), root / str(vocab)) for vocab in VOCABS}
    return {(vocab, level): native(folders[vocab], level=level) for vocab in VOCABS for level in LEVELS}


def row(outputs: tuple[int, ...] = (), seed: int = 0, **values: Any) -> ScheduledSeq:
    changes = {name: values.pop(name) for name in ("banned_ids", "allowed") if name in values}
    whole = ScheduledSeq(
        seq_id=seed,
        token_ids=[1, 5, 5, *outputs],
        prompt_len=3,
        start=0,
        count=1,
        block_table=[0],
        adapter_slot=0,
        samples=True,
        sampling=SamplingParams(max_tokens=9, **values),
        seed=seed,
    )
    return replace(whole, **changes)


def random_logits(rows: int, vocab: int, seed: int = 0, spread: float = 3.0) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * spread


def possible(logits: Tensor, seq: ScheduledSeq) -> set[int]:
    """Tokens that a draw may come to where sums and borders are off by float32's rounding."""
    found = set()
    params = seq.sampling
    row_logits = adjusted(logits, seq)
    for top_p in {params.top_p, min(1.0, params.top_p + SLACK), max(1e-9, params.top_p - SLACK)}:
        for min_p in {params.min_p, params.min_p * (1 - SLACK), min(1.0, params.min_p * (1 + SLACK))}:
            kept = sampler.filtered(row_logits[None], replace(params, top_p=top_p, min_p=min_p))
            middle = sampler.uniform(seq.seed, seq.num_outputs)
            near = torch.tensor([middle, max(0.0, middle - SLACK), min(1 - 2**-53, middle + SLACK)])
            found |= set(sampler.draw(kept.expand(3, -1), near.to(torch.float64)).tolist())
    return found


@st.composite
def requests(draw: st.DrawFn, vocab: int) -> ScheduledSeq:
    token = st.integers(0, vocab - 1)
    return row(
        tuple(draw(st.lists(token, max_size=12))),
        seed=draw(st.integers(-(2**63), 2**63 - 1)),
        temperature=draw(st.sampled_from([0.1, 0.7, 1.0, 2.5, 30.0])),
        top_k=draw(st.sampled_from([0, 0, 1, 5, 40, vocab // 2, vocab - 1, vocab + 5])),
        top_p=draw(st.sampled_from([1.0, 1.0, 0.999, 0.9, 0.5, 0.01])),
        min_p=draw(st.sampled_from([0.0, 0.0, 0.02, 0.3, 1.0])),
        presence_penalty=draw(st.sampled_from([0.0, 0.5])),
        frequency_penalty=draw(st.sampled_from([0.0, -0.3])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.3])),
        logit_bias=tuple(
            {draw(token): draw(st.floats(-100, 100)) for _ in range(draw(st.integers(0, 3)))}.items()
        ),
        banned_ids=tuple(draw(st.lists(token, max_size=3))),
        allowed=draw(
            st.none() | st.lists(token, min_size=5, max_size=60).map(lambda ids: mask_of(ids, vocab))
        ),
    )


@settings(max_examples=150)
@given(data=st.data(), vocab=st.sampled_from(VOCABS), level=st.sampled_from(LEVELS))
def test_tokens_are_those_of_the_sampler_in_torch(
    models: Models, data: st.DataObject, vocab: int, level: Level
) -> None:
    seqs = [data.draw(requests(vocab)) for _ in range(3)]
    logits = random_logits(3, vocab, data.draw(st.integers(0, 10_000)))
    scores = ranked(logits.clone())
    got = models[vocab, level].sample(scores, seqs)
    assert torch.equal(scores.logits, logits)  # they stay as they are
    for place, (seq, found, want) in enumerate(zip(seqs, got, sampler.sample(scores, seqs), strict=True)):
        assert (found.error is None) == (want.error is None)
        if found.error is None and found.token_id != want.token_id:
            assert found.token_id in possible(logits[place], seq)


def test_few_tokens_differ_from_those_of_torch(models: Models) -> None:
    """At most one in a hundred falls on a border that rounding moves."""
    for values in ({}, {"top_p": 0.9}, {"top_k": 50}, {"min_p": 0.05}, {"top_k": 300, "top_p": 0.95}):
        logits = random_logits(200, 5000, seed=4)
        seqs = [row(seed=seed, temperature=0.8, **values) for seed in range(200)]
        scores = ranked(logits)
        got, want = models[5000, "best"].sample(scores, seqs), sampler.sample(scores, seqs)
        assert sum(a.token_id != b.token_id for a, b in zip(got, want, strict=True)) <= 2


def tokens(rows: list[SampledRow]) -> list[int]:
    return [each.token_id for each in rows]


KINDS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.3, "top_p": 0.8},
    {"top_k": 7, "logprobs": 3},
    {"min_p": 0.05, "top_p": 0.95, "presence_penalty": 0.5, "repetition_penalty": 1.2},
    {"temperature": 0.0, "logprobs": 20},
    {"temperature": 0.0, "logit_bias": ((3, 2.0), (9, 7.0))},
    {"allowed": mask_of(range(0, 1041, 5), 1041), "logprobs": 0},
    {"temperature": 0.0},
]


def test_a_row_is_the_same_to_the_bit_in_any_company(models: Models) -> None:
    model, logits = models[1041, "best"], random_logits(40, 1041, seed=3)
    seqs = [row(tuple(range(n % 7)), seed=n, **KINDS[n % 8]) for n in range(40)]
    together = model.sample(ranked(logits), seqs)
    alone = [model.sample(ranked(logits[n : n + 1]), [seqs[n]])[0] for n in range(40)]
    backwards = model.sample(ranked(logits.flip(0).contiguous()), seqs[::-1])[::-1]
    assert together == alone == backwards


@pytest.mark.parametrize("level", LEVELS)
def test_logprobs_are_of_the_raw_logits(models: Models, level: Level) -> None:
    logits = random_logits(8, 1041, seed=5)
    scores = ranked(logits)
    seqs = [row(seed=n, **KINDS[n]) for n in range(8)]
    for found, want in zip(
        models[1041, level].sample(scores, seqs), sampler.sample(scores, seqs), strict=True
    ):
        assert found.token_id == want.token_id
        assert (found.logprob is None) == (want.logprob is None)
        if found.logprob is not None and want.logprob is not None:
            assert found.logprob.logprob == pytest.approx(want.logprob.logprob, abs=1e-5)
            assert found.logprob.rank == want.logprob.rank
            assert [token for token, _ in found.logprob.top] == [token for token, _ in want.logprob.top]
            assert dict(found.logprob.top) == pytest.approx(dict(want.logprob.top), abs=1e-5)


@pytest.mark.parametrize("level", LEVELS)
def test_draws_follow_the_distribution(models: Models, level: Level) -> None:
    logits = random_logits(1, 63, spread=1.0)
    seqs = [row(seed=seed) for seed in range(4000)]
    got = tokens(models[63, level].sample(ranked(logits.expand(4000, 63).contiguous()), seqs))
    frequencies = torch.bincount(torch.tensor(got), minlength=63) / 4000
    torch.testing.assert_close(frequencies, logits[0].softmax(-1), atol=0.03, rtol=0)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
def test_the_ends_of_the_uniform_reach_the_ends_of_what_is_left(
    models: Models, level: Level, number: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.native.draw.uniform", lambda seed, index: number)
    for vocab in VOCABS:
        allowed = [7, 30, vocab - 3]
        (found,) = models[vocab, level].sample(
            ranked(torch.zeros(1, vocab)), [row(allowed=mask_of(allowed, vocab))]
        )
        assert found.token_id == (allowed[0] if number == 0.0 else allowed[-1])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_without_a_token_left_fails_alone(models: Models, temperature: float) -> None:
    seqs = [row(temperature=temperature, banned_ids=tuple(range(63))), row(temperature=temperature)]
    got = models[63, "best"].sample(ranked(random_logits(2, 63)), seqs)
    assert [each.error is None for each in got] == [False, True]


@pytest.mark.parametrize("temperature", [1e-30, 1.1e-5, 1e-4, 1e30])
def test_extreme_temperatures_draw_a_token(models: Models, temperature: float) -> None:
    got = models[1041, "best"].sample(ranked(random_logits(1, 1041) * 100), [row(temperature=temperature)])
    assert got[0].error is None


def test_a_flat_row_keeps_equals_together(models: Models) -> None:
    for values in ({"top_p": 0.5}, {"top_k": 3}, {"min_p": 1.0}):
        seqs = [row(seed=seed, **values) for seed in range(300)]
        got = tokens(models[63, "best"].sample(ranked(torch.zeros(300, 63)), seqs))
        assert len(set(got)) > 55


def test_tokens_outside_the_vocabulary_are_refused(models: Models) -> None:
    model, scores = models[63, "best"], ranked(torch.zeros(1, 63))
    for values in ({"logit_bias": ((63, 1.0),)}, {"repetition_penalty": 1.5, "outputs": (63,)}):
        with pytest.raises(ValueError, match=r"63; the model has 0 \.\. 62"):
            model.sample(scores, [row(**values)])
    with pytest.raises(ValueError, match="4 bytes allow tokens"):
        model.sample(scores, [row(allowed=b"\x00" * 4)])
    assert model.sample(scores, [row(banned_ids=(63, 70))])[0].error is None


def test_a_row_that_is_not_finite_is_not_drawn_from(models: Models) -> None:
    logits = random_logits(2, 63)
    logits[0, 9] = math.nan
    got = models[63, "best"].sample(ranked(logits), [row(logprobs=1), row(logprobs=1)])
    assert [each.error is None for each in got] == [False, True]
