"""Native against reference over drawn models, batches and adapters: whatever the shape, the same numbers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.native.levels import Level
from tests.unit.engine.conftest import Row, adapt
from tests.unit.engine.native_models import Shape, adapter, make_rows, native, reference, save_drawn

MODULES = [f"self_attn.{x}_proj" for x in "qkvo"] + [f"mlp.{x}_proj" for x in ("gate", "up", "down")]
TOLERANCE = {"rtol": 5e-4, "atol": 5e-4}

shapes = st.builds(
    Shape,
    hidden=st.sampled_from([16, 30, 32, 48, 100, 132]),
    inner=st.sampled_from([16, 24, 50, 96]),
    kv_heads=st.integers(1, 3),
    group=st.sampled_from([1, 2, 3, 4, 5, 8, 13]),
    head_dim=st.sampled_from([4, 8, 16, 24, 32, 48, 80]),
    vocab=st.sampled_from([17, 32, 50, 64, 131]),
    window=st.sampled_from([0, 1, 5, 16, 17, 40]),
    family=st.sampled_from(["Llama", "Mistral", "Qwen2", "Qwen3"]),
    tied=st.booleans(),
    biased=st.booleans(),
)
# Around the borders of blocks (16 tokens) and of attention's chunks (64).
lengths = st.lists(
    st.one_of(st.integers(1, 40), st.sampled_from([15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129])),
    min_size=1,
    max_size=5,
)
cuts = st.lists(st.floats(0, 1), min_size=5, max_size=5)
ranks = st.lists(st.sampled_from([1, 2, 4, 7, 8, 16, 17, 33]), min_size=3, max_size=3)
subsets = st.lists(
    st.lists(st.sampled_from(MODULES), min_size=1, max_size=7, unique=True), min_size=3, max_size=3
)
relaxed = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


def halves(rows: list[Row], shares: list[float]) -> list[tuple[int, int]]:
    """Where each row is cut into two steps; either part may be empty."""
    return [
        (cut := int(share * len(row.token_ids)), len(row.token_ids) - cut)
        for row, share in zip(rows, shares, strict=False)
    ]


def run(model: object, rows: list[Row], shares: list[float]) -> torch.Tensor:
    """Two mixed steps over all rows; logits of both, one after the other."""
    first = [row.span(0, cut) for row, (cut, _) in zip(rows, halves(rows, shares), strict=True) if cut]
    second = [
        row.span(cut, rest) for row, (cut, rest) in zip(rows, halves(rows, shares), strict=True) if rest
    ]
    return torch.cat([model.logits(tuple(part)) for part in (first, second) if part])  # type: ignore[attr-defined]


@pytest.mark.parametrize("level", ["best", "avx2"])
@given(shape=shapes, lengths=lengths, shares=cuts, seed=st.integers(0, 99))
@relaxed
def test_any_model_and_batch(
    level: Level, shape: Shape, lengths: list[int], shares: list[float], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = save_drawn(shape, Path(root))
        rows = make_rows(lengths, shape.vocab, seed)
        got = run(native(folder, level=level), rows, shares)
        torch.testing.assert_close(got, run(reference(folder), rows, shares), **TOLERANCE)


@pytest.mark.parametrize("level", ["best", "avx2"])
@given(
    shape=shapes,
    lengths=lengths,
    shares=cuts,
    slots=st.lists(st.integers(0, 3), min_size=5, max_size=5),
    ranks=ranks,
    subsets=subsets,
)
@relaxed
def test_any_mix_of_adapters(
    level: Level,
    shape: Shape,
    lengths: list[int],
    shares: list[float],
    slots: list[int],
    ranks: list[int],
    subsets: list[list[str]],
) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = save_drawn(shape, Path(root))
        rows = make_rows(lengths, shape.vocab, 5, slots)
        ours, theirs = native(folder, level=level), reference(folder)
        for slot, (rank, modules) in enumerate(zip(ranks, subsets, strict=True), start=1):
            weights = adapter(ours.spec, rank, slot, modules)
            ours.adapt(slot, weights)
            adapt(theirs, slot, weights)
        got, want = run(ours, rows, shares), run(theirs, rows, shares)
        torch.testing.assert_close(got, want, **TOLERANCE)
