"""Logits of every supported architecture equal transformers': in one piece, in chunks, token by token."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import BadWeights
from engine.runner import Runner
from tests.unit.engine.conftest import VARIANTS, Row, TinyModel
from tests.unit.engine.family_variants import FAMILY_VARIANTS

TOLERANCE = {"rtol": 2e-4, "atol": 2e-4}
ORIGINAL_LENGTH = 32
"""original_max_position_embeddings of the model with longrope."""
Tiny = Callable[[str], TinyModel]
Blocks = Callable[[int], list[int]]


def tokens(count: int, seed: int = 0) -> list[int]:
    return torch.randint(3, 128, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def fed(runner: Runner, row: Row, pieces: list[int]) -> torch.Tensor:
    """Last logits of each piece, [pieces, vocab]."""
    found, start = [], 0
    for count in pieces:
        found.append(runner.logits((row.span(start, count),))[0])
        start += count
    return torch.stack(found)


@pytest.mark.parametrize("name", [*VARIANTS, *FAMILY_VARIANTS])
@pytest.mark.parametrize(
    "pieces",
    [[70], [32, 16, 22], [5, 40, 1, 24], [50] + [1] * 20],
    ids=["whole", "aligned chunks", "ragged chunks", "decode"],
)
def test_logits_equal_transformers(tiny: Tiny, blocks: Blocks, name: str, pieces: list[int]) -> None:
    model, ids = tiny(name), tokens(70)
    got = fed(model.runner(), Row(0, ids, blocks(70)), pieces)
    ends = torch.tensor(pieces).cumsum(0) - 1
    torch.testing.assert_close(got, model.logits(ids)[ends], **TOLERANCE)


@pytest.mark.parametrize("name", ["llama", "mistral-window", "qwen3", *FAMILY_VARIANTS])
def test_mixed_batch_equals_transformers(tiny: Tiny, blocks: Blocks, name: str) -> None:
    model = tiny(name)
    runner = model.runner()
    rows = [Row(i, tokens(count, seed=i), blocks(count)) for i, count in enumerate((3, 66, 17, 40, 33))]
    starts = [2, 65, 0, 20, 32]
    for row, start in zip(rows, starts, strict=True):
        if start:
            runner.logits((row.span(0, start, samples=False),))
    batch = tuple(
        row.span(start, len(row.token_ids) - start) for row, start in zip(rows, starts, strict=True)
    )
    got = runner.logits(batch)
    for row, logits in zip(rows, got, strict=True):
        if name != "phi3-longrope" or len(row.token_ids) > ORIGINAL_LENGTH:
            torch.testing.assert_close(logits, model.logits(row.token_ids)[-1], **TOLERANCE)


@pytest.mark.parametrize("max_model_len", [16, ORIGINAL_LENGTH])
def test_longrope_serves_short_texts_with_short_factors(
    tiny: Tiny, blocks: Blocks, max_model_len: int
) -> None:
    """What a deployment may serve at most decides, so that no text changes the keys cached for another."""
    model, ids = tiny("phi3-longrope"), tokens(max_model_len)
    got = fed(model.runner(max_model_len=max_model_len), Row(0, ids, blocks(32)), [10, max_model_len - 10])
    torch.testing.assert_close(got, model.logits(ids)[[9, -1]], **TOLERANCE)


@pytest.mark.parametrize(
    "name", ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "gpt2", "opt", "mixtral", "qwen3-moe"]
)
def test_bfloat16_stays_near_float32(tiny: Tiny, blocks: Blocks, name: str) -> None:
    model, ids = tiny(name), tokens(40)
    row = Row(0, ids, blocks(40))
    got = fed(model.runner(dtype="bfloat16"), row, [30] + [1] * 10)
    want = model.logits(ids)[29:]
    assert (got[0] - want[0]).abs().max() < 0.1 * want[0].abs().max()
    assert got.dtype is torch.float32


def test_only_sampling_rows_get_logits(tiny: Tiny, blocks: Blocks) -> None:
    model = tiny("llama")
    first, second = (Row(i, tokens(20, i), blocks(20)) for i in range(2))
    got = model.runner().logits((first.span(0, 20, samples=False), second.span(0, 20)))
    torch.testing.assert_close(got, model.logits(second.token_ids)[-1:], **TOLERANCE)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_weights_in_shards_load_like_one_file(
    tiny: Tiny, blocks: Blocks, tmp_path: Path, backend: str
) -> None:
    model, ids = tiny("llama"), tokens(20)
    model.reference.save_pretrained(tmp_path, max_shard_size="50KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    sharded = TinyModel(tmp_path, model.reference)
    got = fed(sharded.runner(backend=backend), Row(0, ids, blocks(20)), [20])
    torch.testing.assert_close(got[0], model.logits(ids)[-1], **TOLERANCE)


def changed_copy(
    model: TinyModel, folder: Path, change: Callable[[dict[str, torch.Tensor]], object]
) -> TinyModel:
    shutil.copytree(model.folder, folder, dirs_exist_ok=True)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return TinyModel(folder, model.reference)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("model.norm.weight"), "lacks tensor model.norm.weight of shape \\[48\\]"),
        (lambda t: t.update(extra=torch.ones(1)), "does not have: extra"),
        (
            lambda t: t.update({"model.norm.weight": torch.ones(47)}),
            "shape \\[47\\]; config.json asks \\[48\\]",
        ),
        (lambda t: t["model.norm.weight"].fill_(torch.nan), "not finite"),
        (lambda t: t["lm_head.weight"][3, 5].fill_(-torch.inf), "lm_head.weight holds .* not finite"),
        (
            lambda t: t.update({"model.norm.weight": torch.ones(48, dtype=torch.int8)}),
            "int8; supported: torch.bf",
        ),
    ],
    ids=["missing", "surplus", "shape", "nan", "infinite", "dtype"],
)
def test_wrong_weights_are_refused_by_name(
    tiny: Tiny, tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], object], message: str
) -> None:
    with pytest.raises(BadWeights, match=message):
        changed_copy(tiny("llama"), tmp_path, change).runner()


def test_checkpoints_of_the_bare_model_load_too(tiny: Tiny, blocks: Blocks, tmp_path: Path) -> None:
    """As the first GPT-2 was published: no common prefix, and masks among the weights."""

    def strip(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            tensors[name.removeprefix("transformer.")] = tensors.pop(name)
        tensors["h.0.attn.bias"] = torch.ones(1, 1, 256, 256, dtype=torch.uint8)

    model, ids = tiny("gpt2"), tokens(20)
    got = fed(changed_copy(model, tmp_path, strip).runner(), Row(0, ids, blocks(20)), [20])
    torch.testing.assert_close(got[0], model.logits(ids)[-1], **TOLERANCE)


def test_damaged_and_missing_files_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    shutil.copytree(tiny("llama").folder, tmp_path, dirs_exist_ok=True)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(BadWeights, match="cannot be read"):
        TinyModel(tmp_path, None).runner()
    weights.unlink()
    with pytest.raises(BadWeights, match="holds neither"):
        TinyModel(tmp_path, None).runner()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": 3}))
    with pytest.raises(BadWeights, match="no shard index"):
        TinyModel(tmp_path, None).runner()
