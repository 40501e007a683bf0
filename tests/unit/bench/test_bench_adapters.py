"""A random adapter as a folder is one that the platform reads, and the same as in memory."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from bench.adapters import random_adapter, write_adapter
from engine import ModelSpec, read_spec
from lora.format import read_adapter


def spec(tmp_path: Path) -> ModelSpec:
    shape = {"hidden_size": 16, "intermediate_size": 24, "vocab_size": 40, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    rest = {"architectures": ["LlamaForCausalLM"], "eos_token_id": 0, "max_position_embeddings": 64}
    (tmp_path / "config.json").write_text(json.dumps(shape | heads | rest))
    return read_spec(tmp_path)


def test_a_written_adapter_is_read_with_its_rank_and_every_linear_module(tmp_path: Path) -> None:
    model, folder = spec(tmp_path), tmp_path / "adapter"
    write_adapter(folder, "base", model, rank=4, seed=9)
    adapter = read_adapter(folder)
    assert adapter.rank == 4
    tensors = load_file(folder / "adapter_model.safetensors")
    assert len(tensors) == 2 * len(model.linear_modules)
    for name, pair in random_adapter(model, rank=4, seed=9).modules.items():
        assert torch.equal(tensors[f"base_model.model.{name}.lora_A.weight"], pair.a)
        assert torch.equal(tensors[f"base_model.model.{name}.lora_B.weight"], pair.b)
