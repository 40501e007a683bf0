"""Families beyond the Llama one in the native backend: the numbers of transformers and of the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.adapter_weights import AdapterWeights, LoraPair
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import AdapterMismatch
from engine.modelspec import ModelSpec, read_spec
from engine.native.levels import Level
from engine.native.model import NativeModel
from engine.reference import ReferenceModel
from engine.sampling import SamplingParams
from tests.unit.engine.conftest import Row, TinyModel, adapt, save_tiny
from tests.unit.engine.family_variants import FAMILY_VARIANTS
from tests.unit.engine.native_adapters import whole
from tests.unit.engine.native_models import (
    NUM_BLOCKS,
    KeptLogits,
    adapter,
    make_rows,
    native,
    reference,
    torch_threads_kept,
)

Tiny = Callable[[str], TinyModel]
TOLERANCE = {"rtol": 3e-4, "atol": 3e-4}
DISTINCT = ["gemma2", "gemma3", "phi3", "gpt2", "opt", "mixtral", "qwen3-moe"]
ODD_SIZES = {"vocab_size": 99, "hidden_size": 60, "intermediate_size": 50}
"""Ends of rows that fill no vector."""

families = pytest.mark.parametrize("name", FAMILY_VARIANTS)
distinct = pytest.mark.parametrize("name", DISTINCT)
levels = pytest.mark.parametrize("level", ["best", "avx2"])
kinds = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])


def modules(spec: ModelSpec) -> list[str]:
    return [module for group in spec.groups.values() for module in group]


def with_adapters(model: KeptLogits) -> KeptLogits:
    """Slot 1: first and last module, 2: all, 3: the last alone."""
    names = modules(model.spec)
    for slot, (rank, part) in enumerate(((4, [names[0], names[-1]]), (16, names), (7, names[-1:])), start=1):
        model.adapt(slot, adapter(model.spec, rank, slot, part))
    return model


@levels
@pytest.mark.parametrize("changes", [{"query_scale": 0.7}, {"attention_softcap": 2.0}], ids=["scale", "cap"])
def test_scores_are_scaled_and_capped(tiny: Tiny, level: Level, changes: dict[str, Any]) -> None:
    folder = tiny("llama").folder
    spec = replace(read_spec(folder), **changes)
    ours = KeptLogits(spec, torch.float32, NUM_BLOCKS, max_rank=8, threads=2, level=level)
    ours.load(folder)
    theirs = ReferenceModel(folder, spec, torch.float32, NUM_BLOCKS, 8)
    (row,) = make_rows([70], 128, seed=1)
    for start, count in ((0, 50), (50, 1), (51, 19)):
        span = (row.span(start, count),)
        torch.testing.assert_close(ours.logits(span), theirs.scores(span).logits, **TOLERANCE)


@distinct
@levels
def test_sizes_that_fill_no_vector(tmp_path: Path, name: str, level: Level) -> None:
    inner = {"gpt2": {"n_inner": 50}, "opt": {"ffn_dim": 50}, "qwen3-moe": {"moe_intermediate_size": 21}}
    folder = save_tiny(name, tmp_path, **ODD_SIZES, **inner.get(name, {})).folder
    (row,) = make_rows([40], 99, seed=1)
    ours, theirs = native(folder, level=level), reference(folder)
    for piece in ((0, 21), (21, 1), (22, 18)):
        span = (row.span(*piece),)
        torch.testing.assert_close(ours.logits(span), theirs.logits(span), **TOLERANCE)


@families
def test_greedy_tokens_equal_transformers(tiny: Tiny, name: str) -> None:
    """Through chunks, prefix hits and preemptions; given all tokens, transformers likes each one best."""
    model = tiny(name)
    spec = read_spec(model.folder)
    settings: dict[str, Any] = {"max_num_seqs": 6, "max_batched_tokens": 40, "check_integrity": True}
    pool = 13 + 4 * (len(spec.kv_groups.windows) - 1)
    with torch_threads_kept():
        engine = Engine(EngineConfig(model=model.folder, dtype="float32", num_blocks=pool, **settings))
    prompts = [row.token_ids for row in make_rows([3, 90, 17, 40, 64, 33], 128, seed=3)]
    sampling = SamplingParams(max_tokens=66, temperature=0.0, ignore_eos=True)
    for prompt, tokens in zip(prompts, engine.generate(prompts, sampling), strict=True):
        likeliest = model.logits(prompt + tokens).argmax(-1).tolist()
        assert tokens == likeliest[len(prompt) - 1 : -1]
    # A model whose layers all have a window never fills this pool.
    assert engine.stats().preemptions > 0 or None not in spec.windows


@families
@levels
@kinds
def test_company_pieces_and_threads_change_no_bit(tiny: Tiny, name: str, level: Level, dtype: str) -> None:
    folder = tiny(name).folder
    model = with_adapters(native(folder, dtype=dtype, level=level))
    rows = make_rows([1, 33, 5, 64, 17, 50], 128, seed=5, slots=[0, 1, 2, 3, 0, 2])
    together = whole(model, rows)
    for row, expected in zip(rows, together, strict=True):
        assert torch.equal(whole(model, [row])[0], expected)
    for first in (1, 16, 21):
        model.logits([rows[3].span(0, first, samples=False), rows[5].span(0, first, samples=False)])
        rest = [rows[index].span(first, len(rows[index].token_ids) - first) for index in (3, 5)]
        assert torch.equal(model.logits(rest), together[[3, 5]])
    assert torch.equal(
        whole(with_adapters(native(folder, dtype=dtype, level=level, threads=5)), rows), together
    )


@pytest.mark.parametrize("name", ["mixtral", "gemma2"])
def test_repeated_steps_agree_while_threads_come_and_go(tiny: Tiny, name: str) -> None:
    """Of five threads on few cores some see a layer when the others have left it."""
    model = native(tiny(name).folder, dtype="bfloat16", threads=5)
    rows = make_rows([3, 9, 17], 128, seed=6)
    want = whole(model, rows)
    assert all(torch.equal(whole(model, rows), want) for _ in range(300))


@distinct
@levels
def test_adapters_on_every_module_equal_the_reference(tiny: Tiny, name: str, level: Level) -> None:
    ours, theirs = with_adapters(native(tiny(name).folder, level=level)), reference(tiny(name).folder)
    names = modules(ours.spec)
    for slot, (rank, part) in enumerate(((4, [names[0], names[-1]]), (16, names), (7, names[-1:])), start=1):
        adapt(theirs, slot, adapter(ours.spec, rank, slot, part))
    rows = make_rows([9, 17, 5, 30, 12, 21, 8], 128, seed=1, slots=[0, 1, 2, 3, 0, 2, 1])
    spans = tuple(row.span(0, len(row.token_ids)) for row in rows)
    torch.testing.assert_close(ours.logits(spans), theirs.logits(spans), **TOLERANCE)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("mixtral", "model.layers.0.block_sparse_moe.experts.1.w1"),
        ("qwen3-moe", "model.layers.0.mlp.gate"),
        ("phi3", "model.layers.0.self_attn.q_proj"),
    ],
)
def test_modules_that_take_no_adapter_are_refused_by_name(tiny: Tiny, name: str, module: str) -> None:
    model = native(tiny(name).folder)
    pair = LoraPair(torch.zeros(4, 48), torch.zeros(80, 4), 1.0)
    with pytest.raises(AdapterMismatch, match=f"changes module {module}, which the model does not have"):
        model.adapt(1, AdapterWeights("sha256:x", {module: pair}))


@pytest.mark.parametrize("name", ["gpt2", "opt"])
def test_positions_beyond_the_learned_ones_are_refused(tiny: Tiny, name: str) -> None:
    model: NativeModel = native(tiny(name).folder)
    row = Row(0, [5] * 257, list(range(17)))
    model.scores([row.span(0, 256)])
    with pytest.raises(ValueError, match=r"positions lie in 256 \.\. 256; the model has 0 \.\. 255"):
        model.scores([row.span(256, 1)])
