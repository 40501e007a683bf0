"""Tensors of a base model by module name: those of transformers, whichever way a checkpoint keeps them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import transformers

from engine.base_tensors import BaseTensors
from engine.errors import BadWeights
from tests.unit.engine.conftest import TinyModel

Tiny = Callable[[str], TinyModel]


@pytest.mark.parametrize("name", ["llama-biased", "llama-tied", "gemma2", "gpt2", "opt", "qwen3-moe"])
def test_every_target_is_read_as_transformers_has_it(tiny: Tiny, name: str) -> None:
    model = tiny(name)
    base = BaseTensors(model.folder)
    state = model.reference.state_dict()
    for module in {"lm_head", *(key.rpartition(".")[0] for key in state if ".experts" not in key)}:
        found = model.reference.get_submodule(module)
        weight = state.get(f"{module}.weight")
        if weight is not None:
            wanted = weight.T if hasattr(found, "nf") else weight
            assert torch.equal(base.take(f"{module}.weight"), wanted)
        bias = state.get(f"{module}.bias")
        assert (base.take(f"{module}.bias") is None) == (bias is None)
        assert bias is None or torch.equal(base.take(f"{module}.bias"), bias)


def test_shards_are_read_by_many_threads_at_once(tiny: Tiny, tmp_path: Path) -> None:
    model = tiny("llama")
    model.reference.save_pretrained(tmp_path, max_shard_size="20KB")
    base, state = BaseTensors(tmp_path), model.reference.state_dict()
    with ThreadPoolExecutor(8) as threads:
        for name, tensor in zip(state, threads.map(base.take, state), strict=True):
            assert torch.equal(tensor, state[name])


def test_an_unknown_name_is_none_and_a_missing_file_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    assert BaseTensors(tiny("llama").folder).take("model.layers.9.mlp.up_proj.weight") is None
    (tmp_path / "config.json").write_bytes((tiny("llama").folder / "config.json").read_bytes())
    with pytest.raises(BadWeights, match="holds neither"):
        BaseTensors(tmp_path)


def test_an_encoder_has_no_head(tmp_path: Path) -> None:
    shape = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.BertModel(transformers.BertConfig(vocab_size=16, **shape))
    model.save_pretrained(tmp_path)
    base, name = BaseTensors(tmp_path), "encoder.layer.0.attention.self.query.weight"
    found = base.take(f"bert.{name}")
    assert found is not None
    assert torch.equal(found, model.state_dict()[name])
    assert base.take("lm_head.weight") is None
