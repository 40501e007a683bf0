"""Keys and values in int8 against the reference over a cache whose keys and values were rounded alike."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.adapter_weights import AdapterWeights, LoraPair
from engine.attention.reference import ReferenceAttention
from engine.modelspec import read_spec
from engine.native.levels import Level
from engine.records import BlockCopy
from engine.runner import Runner
from tests.unit.engine.conftest import Row
from tests.unit.engine.native_models import Shape, make_rows, native, reference, save_drawn
from tests.unit.engine.swapping import complete_in

TOLERANCE = {"rtol": 2e-3, "atol": 2e-3}
SHAPES = {
    "plain": Shape(),
    "wide heads": Shape(head_dim=80, group=5, biased=True),
    "narrow heads": Shape(head_dim=4, kv_heads=3, group=13),
    "window": Shape(head_dim=24, family="Mistral", window=17),
    "long head": Shape(hidden=64, kv_heads=1, head_dim=256, family="Qwen3"),
}
levels = pytest.mark.parametrize("level", ["best", "avx2"])
shapes = pytest.mark.parametrize("name", SHAPES)


def rounded(x: Tensor) -> Tensor:
    """Keys or values [T, heads, head_dim] as eight bits keep them."""
    largest = x.abs().amax(-1, keepdim=True).clamp_min(1e-30)
    return torch.round(x * (127.0 / largest)) * (largest / 127.0)


def simulated(folder: Path, patch: pytest.MonkeyPatch) -> Runner:
    attend = ReferenceAttention.attend

    def over_rounded(self: Any, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: Any) -> Tensor:
        return attend(self, layer, q, rounded(k), rounded(v), plan)

    patch.setattr(ReferenceAttention, "attend", over_rounded)
    return reference(folder)


def pieces(rows: list[Row], share: float) -> list[tuple[Any, ...]]:
    """Two steps over all rows, each cut at that share of its length; the first may be empty."""
    cuts = [int(share * len(row.token_ids)) for row in rows]
    first = tuple(row.span(0, cut) for row, cut in zip(rows, cuts, strict=True) if cut)
    rest = tuple(row.span(cut, len(row.token_ids) - cut) for row, cut in zip(rows, cuts, strict=True))
    return [first, rest] if first else [rest]


@levels
@shapes
@pytest.mark.parametrize("share", [0.0, 0.7, 0.999])
def test_logits_equal_the_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, level: Level, share: float
) -> None:
    folder = save_drawn(SHAPES[name], tmp_path)
    rows = make_rows([1, 17, 40, 130], SHAPES[name].vocab, seed=3)
    ours, theirs = native(folder, level=level, kv_cache="int8"), simulated(folder, monkeypatch)
    for step in pieces(rows, share):
        torch.testing.assert_close(ours.logits(step), theirs.logits(step), **TOLERANCE)


drawn = st.builds(
    Shape,
    kv_heads=st.integers(1, 3),
    group=st.sampled_from([1, 2, 3, 5, 13]),
    head_dim=st.sampled_from([4, 8, 16, 24, 30, 48, 80]),
    window=st.sampled_from([0, 1, 5, 16, 17, 40]),
    family=st.sampled_from(["Mistral", "Qwen3"]),
)
lengths = st.lists(st.sampled_from([1, 2, 9, 15, 16, 17, 33, 63, 64, 65, 129]), min_size=1, max_size=5)


@levels
@given(shape=drawn, lengths=lengths, share=st.floats(0, 1, exclude_max=True), seed=st.integers(0, 99))
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_any_heads_and_batch(level: Level, shape: Shape, lengths: list[int], share: float, seed: int) -> None:
    """A number that both sides round apart, one in some ten thousand, shows in the third digit."""
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        folder = save_drawn(shape, Path(root))
        rows = make_rows(lengths, shape.vocab, seed)
        ours, theirs = native(folder, level=level, kv_cache="int8"), simulated(folder, patch)
        for step in pieces(rows, share):
            torch.testing.assert_close(ours.logits(step), theirs.logits(step), rtol=0.0, atol=0.05)


@levels
def test_what_another_sequence_left_in_a_block_is_never_seen(tmp_path: Path, level: Level) -> None:
    """Scales that are no numbers stand in the block's free places."""
    folder = save_drawn(Shape(), tmp_path)
    dirty, clean = (native(folder, level=level, kv_cache="int8") for _ in range(2))
    pairs = {
        name: LoraPair(torch.full((1, width), 3e38), torch.full((out, 1), 3e38), 1.0)
        for name, (out, width) in dirty.spec.linear_modules.items()
    }
    dirty.adapt(1, AdapterWeights("sha256:huge", pairs))
    (row,) = make_rows([21], 64, seed=6)
    bad = Row(2, [7] * 32, row.block_table, adapter_slot=1)
    assert not dirty.logits((bad.span(0, 32),)).isfinite().any()
    for start, count in ((0, 9), (9, 1), (10, 11)):
        step = (row.span(start, count),)
        assert torch.equal(dirty.logits(step), clean.logits(step))


def test_a_copied_block_brings_its_scales(tmp_path: Path) -> None:
    model = native(save_drawn(Shape(), tmp_path), kv_cache="int8")
    (row,) = make_rows([30], 64, seed=7)
    model.logits((row.span(0, 29, samples=False),))
    elsewhere = [block for block in range(64) if block not in row.block_table][: len(row.block_table)]
    model.copy_blocks([BlockCopy(*pair) for pair in zip(row.block_table, elsewhere, strict=True)])
    moved = Row(1, row.token_ids, elsewhere)
    assert torch.equal(model.logits((moved.span(29, 1),)), model.logits((row.span(29, 1),)))


def test_greedy_tokens_are_the_same_after_a_swap(tmp_path: Path) -> None:
    folder = save_drawn(Shape(vocab=100), tmp_path)
    block_bytes = read_spec(folder).block_bytes("int8")

    def completions(num_blocks: int) -> list[list[int]]:
        sizes = {"kv_bytes": num_blocks * block_bytes, "swap_bytes": 20 * block_bytes}
        return complete_in(num_blocks, model=folder, kv_cache="int8", backend="native", **sizes)

    assert completions(9) == completions(60)
