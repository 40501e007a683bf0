"""Weights in int8 against a simulation in torch that rounds the same numbers and adds them exactly."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from engine.adapter_weights import AdapterWeights, LoraPair
from engine.native.levels import Level
from tests.unit.engine.conftest import Row, TinyModel, adapt
from tests.unit.engine.int8_simulation import quantised, simulated
from tests.unit.engine.native_models import Shape, adapter, make_rows, native, save_drawn

Tiny = Callable[[str], TinyModel]
ALL = [f"self_attn.{x}_proj" for x in "qkvo"] + [f"mlp.{x}_proj" for x in ("gate", "up", "down")]
LENGTHS = [1, 17, 40, 33]
SHAPES = {
    "plain": Shape(),
    "tied": Shape(hidden=100, inner=50, vocab=131, tied=True),
    "biased": Shape(hidden=132, inner=96, head_dim=24, biased=True, vocab=50),
    "less than a turn": Shape(hidden=16, inner=16, head_dim=4, vocab=17, tied=True),
    "wide": Shape(hidden=64, inner=2050),
    "window": Shape(hidden=48, inner=24, family="Qwen3", group=5, window=9),
}
levels = pytest.mark.parametrize("level", ["best", "avx2"])


def assert_same_numbers(got: torch.Tensor, want: torch.Tensor) -> None:
    """Of logits [rows, vocab], to the last digits. A number that both sides round apart, one in some hundred
    thousand, shows in the third digit of the rows that read it."""
    torch.testing.assert_close(got, want, rtol=0.0, atol=0.02 * float(want.abs().max()))
    worst = (got - want).abs().amax(-1) / want.abs().amax(-1)
    assert worst.median() < 1e-5


def spans(rows: list[Row]) -> tuple[object, ...]:
    return tuple(row.span(0, len(row.token_ids)) for row in rows)


def edited(folder: Path, **tensors: torch.Tensor) -> Path:
    """The model with other values in all tensors whose names end so; dots are written as underscores."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    for name, tensor in weights.items():
        for ending, values in tensors.items():
            if name.removesuffix(".weight").replace(".", "_").endswith(ending):
                weights[name] = values.expand(tensor.shape).contiguous()
    save_file(weights, path, metadata={"format": "pt"})
    return folder


@levels
@pytest.mark.parametrize("name", SHAPES)
def test_logits_equal_the_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, level: Level
) -> None:
    folder = save_drawn(SHAPES[name], tmp_path)
    rows = make_rows(LENGTHS, SHAPES[name].vocab, seed=3)
    got = native(folder, level=level, weights="int8").logits(spans(rows))
    assert_same_numbers(got, simulated(folder, monkeypatch).logits(spans(rows)))


@levels
@pytest.mark.parametrize("name", ["gemma2", "gemma3", "phi3", "gpt2", "opt", "mixtral", "qwen3-moe"])
def test_each_family_equals_the_simulation(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, name: str, level: Level
) -> None:
    rows = make_rows(LENGTHS, 128, seed=3)
    got = native(tiny(name).folder, level=level, weights="int8").logits(spans(rows))
    want = simulated(tiny(name).folder, monkeypatch).logits(spans(rows))
    torch.testing.assert_close(got, want, rtol=0.0, atol=0.02 * float(want.abs().max()))


@levels
def test_deltas_of_adapters_are_computed_on_rows_that_are_not_quantised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: Level
) -> None:
    folder = save_drawn(Shape(hidden=96, inner=160), tmp_path)
    ours, theirs = native(folder, level=level, weights="int8"), simulated(folder, monkeypatch)
    for slot, rank in ((1, 4), (2, 16)):
        weights = adapter(ours.spec, rank, slot, ALL)
        ours.adapt(slot, weights)
        adapt(theirs, slot, weights)
    rows = make_rows(LENGTHS, 64, seed=4, slots=[0, 1, 2, 1])
    assert_same_numbers(ours.logits(spans(rows)), theirs.logits(spans(rows)))


drawn = st.builds(
    Shape,
    hidden=st.sampled_from([16, 30, 34, 62, 64, 66, 100, 132]),
    inner=st.sampled_from([16, 24, 50, 63, 65, 96, 200]),
    kv_heads=st.integers(1, 3),
    group=st.sampled_from([1, 2, 3, 5]),
    head_dim=st.sampled_from([4, 8, 16, 24, 48]),
    vocab=st.sampled_from([17, 31, 32, 33, 50, 64, 131]),
    family=st.sampled_from(["Llama", "Qwen2", "Qwen3"]),
    tied=st.booleans(),
    biased=st.booleans(),
)


@levels
@given(shape=drawn, lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5), seed=st.integers(0, 99))
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_any_model_and_batch(level: Level, shape: Shape, lengths: list[int], seed: int) -> None:
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        folder = save_drawn(shape, Path(root))
        rows = make_rows(lengths, shape.vocab, seed)
        got = native(folder, level=level, weights="int8").logits(spans(rows))
        want = simulated(folder, patch).logits(spans(rows))
    torch.testing.assert_close(got, want, rtol=0.0, atol=0.03 * float(want.abs().max()))


@levels
def test_sums_of_the_largest_numbers_are_exact(tmp_path: Path, level: Level) -> None:
    """One number in each turn makes all of them 127 afterwards, of rows and of weights."""
    width = 1024
    folder = save_drawn(Shape(hidden=width, inner=16, vocab=64), tmp_path)
    peaks = torch.zeros(width)
    peaks[::64] = 1.0
    signs = torch.where(torch.arange(64) % 2 == 0, 1.0, -1.0)[:, None]
    zero = torch.zeros(())
    edited(
        folder, embed_tokens=peaks, lm_head=peaks * signs, o_proj=zero, down_proj=zero, norm=torch.ones(())
    )
    whole, _ = quantised(peaks)
    assert whole.abs().unique().tolist() == [127.0]
    (row,) = make_rows([3], 64, seed=1)
    got = native(folder, level=level, weights="int8").logits(spans([row]))[0]
    size = (width / 16) ** 0.5  # of a peak behind the norm
    torch.testing.assert_close(got, signs[:, 0] * size * 16, rtol=1e-4, atol=0.0)


@levels
def test_rows_of_zeros_stay_zero(tmp_path: Path, level: Level) -> None:
    folder = edited(save_drawn(Shape(), tmp_path), embed_tokens=torch.zeros(()))
    (row,) = make_rows([20], 64, seed=2)
    assert native(folder, level=level, weights="int8").logits(spans([row])).eq(0.0).all()


@levels
@pytest.mark.parametrize("scale", [3e38, 1e-30])
def test_a_row_that_is_no_number_spoils_no_other(tmp_path: Path, level: Level, scale: float) -> None:
    """Deltas that overflow, or vanish, in one sequence of a batch."""
    model = native(save_drawn(Shape(hidden=96, inner=160), tmp_path), level=level, weights="int8")
    pairs = {
        name: LoraPair(torch.full((1, width), scale), torch.full((out, 1), scale), 1.0)
        for name, (out, width) in model.spec.linear_modules.items()
    }
    model.adapt(1, AdapterWeights("sha256:extreme", pairs))
    rows = make_rows([5, 21, 3, 1], 64, seed=6, slots=[0, 1, 0, 1])
    together = model.logits(spans(rows))
    assert together[[1, 3]].isfinite().all() == (scale < 1.0)
    for i in (0, 2):
        assert torch.equal(model.logits(spans([rows[i]]))[0], together[i])
