"""What is left of a budget for the KV pool, with every number told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.adapter_weights import AdapterWeights, LoraPair
from engine.config import EngineConfig
from engine.errors import BadWeights, InvalidConfig
from engine.memory import DEFAULT_KV_BYTES, HEADROOM, adapter_budget, pair_bytes, split_memory, weight_bytes
from engine.modelspec import read_spec
from engine.records import MemorySplit
from engine.runner import build_runner
from tests.unit.engine.conftest import TinyModel
from tests.unit.engine.native_models import Shape, save_drawn, torch_threads_kept

Tiny = Callable[[str], TinyModel]


def _split(folder: Path, **settings: Any) -> MemorySplit:
    return split_memory(EngineConfig(model=folder, **settings), read_spec(folder))


def _parameters(model: TinyModel) -> int:
    return sum(tensor.numel() for tensor in model.reference.parameters())


@pytest.mark.parametrize("name", ["llama", "llama-tied", "gemma2"])
@pytest.mark.parametrize(("dtype", "size"), [("bfloat16", 2), ("float32", 4)])
def test_weights_are_counted_as_they_are_held(tiny: Tiny, name: str, dtype: str, size: int) -> None:
    model = tiny(name)
    assert weight_bytes(model.folder, read_spec(model.folder), dtype, int8=False) == size * _parameters(model)


def test_in_eight_bits_all_but_vectors_and_the_embedding_take_a_byte(tiny: Tiny) -> None:
    model = tiny("llama")
    spec = read_spec(model.folder)
    matrices = [tensor for tensor in model.reference.parameters() if tensor.ndim > 1]
    rounded = sum(tensor.numel() + 4 * len(tensor) for tensor in matrices)
    vectors = 2 * sum(tensor.numel() for tensor in model.reference.parameters() if tensor.ndim == 1)
    embedding = spec.vocab_size * spec.hidden_size
    kept = 2 * embedding - (embedding + 4 * spec.vocab_size)
    assert weight_bytes(model.folder, spec, "bfloat16", int8=True) == rounded + vectors + kept


def test_the_pool_gets_what_the_other_parts_leave(tiny: Tiny) -> None:
    folder = tiny("llama").folder
    block = read_spec(folder).block_bytes("bfloat16")
    split = _split(folder, memory_bytes=1 << 30, swap_bytes=1 << 20, adapter_slots=2, max_lora_rank=8)
    assert (split.host, split.headroom) == (1 << 20, HEADROOM)
    assert split.adapters == 2 * sum(
        pair_bytes(8, *shape, 2) for shape in read_spec(folder).linear_modules.values()
    )
    assert 0 <= (1 << 30) - split.total < block
    assert split.kv % block == 0


def test_a_larger_step_and_more_adapters_leave_less(tiny: Tiny) -> None:
    folder = tiny("llama").folder
    sizes = {"memory_bytes": 1 << 30, "max_batched_tokens": 512, "adapter_slots": 2}
    kv = _split(folder, **sizes).kv
    for change in ({"max_batched_tokens": 2048}, {"adapter_slots": 9}, {"swap_bytes": 1 << 20}):
        assert _split(folder, **{**sizes, **change}).kv < kv


def test_adapters_take_what_is_set_for_them(tiny: Tiny) -> None:
    folder = tiny("llama").folder
    split = _split(folder, memory_bytes=1 << 30, adapter_bytes=12345, adapter_slots=9)
    assert split.adapters == 12345
    assert split.kv < _split(folder, memory_bytes=1 << 30, adapter_bytes=0).kv


def _taken(folder: Path, dtype: str, rank: int, backend: str) -> tuple[int, int]:
    """Bytes of an adapter with every module at the highest rank, and those set aside for one."""
    sizes: dict[str, Any] = {"num_blocks": 8, "adapter_slots": 1, "max_lora_rank": rank}
    config = EngineConfig(model=folder, dtype=dtype, backend=backend, **sizes)  # type: ignore[arg-type]
    spec = read_spec(folder)
    modules = {
        name: LoraPair(torch.ones(rank, width), torch.ones(out, rank), 1.0)
        for name, (out, width) in spec.linear_modules.items()
    }
    prepared = build_runner(config).prepare_adapter(AdapterWeights("sha256:full", modules))
    return prepared.nbytes, adapter_budget(config, spec)


@pytest.mark.parametrize("rank", [1, 8, 15])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("backend", ["native", "reference"])
def test_as_many_adapters_fit_as_there_are_slots(
    tiny: Tiny, tmp_path: Path, backend: str, dtype: str, rank: int
) -> None:
    odd = save_drawn(Shape(hidden=40, inner=56, kv_heads=1, group=3, head_dim=10), tmp_path)
    with torch_threads_kept():
        for folder in (odd, *(tiny(name).folder for name in ("llama", "phi3", "gpt2", "qwen3-moe"))):
            taken, set_aside = _taken(folder, dtype, rank, backend)
            assert taken <= set_aside


def test_no_more_is_set_aside_than_adapters_of_a_usual_size_take(tmp_path: Path) -> None:
    folder = save_drawn(Shape(hidden=576, inner=1536, kv_heads=3, group=3, head_dim=64), tmp_path)
    with torch_threads_kept():
        taken, set_aside = _taken(folder, "bfloat16", 8, "native")
    assert taken <= set_aside < 1.03 * taken


def test_the_pool_alone_can_be_named_too(tiny: Tiny) -> None:
    folder = tiny("llama").folder
    block = read_spec(folder).block_bytes("bfloat16")
    assert _split(folder).kv == DEFAULT_KV_BYTES // block * block
    assert _split(folder, kv_bytes=10 * block + 1).kv == 10 * block
    assert _split(folder, num_blocks=7).kv == 7 * block


def test_a_budget_that_leaves_nothing_is_refused_with_all_its_parts(tiny: Tiny) -> None:
    folder = tiny("llama").folder
    with pytest.raises(InvalidConfig, match=r"is 1000, of which weights \d+, .*headroom \d+ leave -\d+ for"):
        _split(folder, memory_bytes=1000)
    with pytest.raises(InvalidConfig, match=r"kv_bytes is 100; 16 tokens of this model take \d+"):
        _split(folder, kv_bytes=100)
    with pytest.raises(InvalidConfig, match="one of the two is allowed"):
        _split(folder, kv_bytes=100, memory_bytes=1000)


@pytest.mark.parametrize("setting", ["memory_bytes", "kv_bytes", "num_blocks", "swap_bytes"])
def test_more_than_the_machine_has_is_refused(tiny: Tiny, setting: str) -> None:
    with pytest.raises(
        InvalidConfig, match=r"takes \d+ bytes and swap_bytes \d+; this machine has \d+ in all"
    ):
        _split(tiny("llama").folder, **{setting: 1 << 50})


def test_a_file_without_a_header_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00nonsense")
    with pytest.raises(BadWeights, match="no safetensors header"):
        weight_bytes(tmp_path, read_spec(tiny("llama").folder), "bfloat16", int8=False)
