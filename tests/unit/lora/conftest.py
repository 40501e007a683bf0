"""Adapters made by PEFT on a tiny random Llama."""

import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from engine.adapter_targets import AdapterTargets
from engine.base_tensors import BaseTensors
from engine.modelspec import read_spec

BASE_NAME = "tiny"


@dataclass(frozen=True)
class PeftPair:
    """A LoRA layer as PEFT holds it."""

    a: torch.Tensor
    b: torch.Tensor
    scale: float


@dataclass(frozen=True)
class MadeAdapter:
    folder: Path
    pairs: dict[str, PeftPair]


ChangeTensors = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
MakeAdapter = Callable[..., MadeAdapter]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random Llama with three layers."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    torch.manual_seed(1)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def targets(tiny_model: Path) -> AdapterTargets:
    return read_spec(tiny_model).adapter_targets


@pytest.fixture(scope="session")
def base(tiny_model: Path) -> BaseTensors:
    return BaseTensors(tiny_model)


@pytest.fixture(scope="session")
def make_adapter(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeAdapter:
    """make_adapter(seed=0, **LoraConfig fields): a saved adapter with random A and B, made once a set."""
    made: dict[str, MadeAdapter] = {}

    def make(seed: int = 0, **fields: Any) -> MadeAdapter:
        key = repr((seed, sorted(fields.items(), key=lambda item: item[0])))
        if key not in made:
            made[key] = _build(tiny_model, tmp_path_factory.mktemp("adapter"), seed, fields)
        return made[key]

    return make


def _build(model: Path, folder: Path, seed: int, fields: dict[str, Any]) -> MadeAdapter:
    base = LlamaForCausalLM.from_pretrained(model)
    base.name_or_path = BASE_NAME
    defaults = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    config = LoraConfig(**{**defaults, "init_lora_weights": False, **fields})
    torch.manual_seed(seed)
    with warnings.catch_warnings():  # PEFT reads names that transformers has deprecated
        warnings.simplefilter("ignore", FutureWarning)
        peft_model = get_peft_model(base, config)
        peft_model.save_pretrained(folder, save_embedding_layers=False)
    return MadeAdapter(folder, dict(_lora_layers(peft_model)))


def _lora_layers(peft_model: torch.nn.Module) -> Iterator[tuple[str, PeftPair]]:
    for name, module in peft_model.named_modules():
        if hasattr(module, "lora_A") and "default" in module.lora_A:
            a, b = (side["default"].weight.detach().clone() for side in (module.lora_A, module.lora_B))
            yield name.removeprefix("base_model.model."), PeftPair(a, b, module.scaling["default"])


@pytest.fixture
def adapter_folder(make_adapter: MakeAdapter, tmp_path: Path) -> Path:
    """A private copy of a plain adapter, to be spoiled by a test."""
    folder = tmp_path / "plain"
    shutil.copytree(make_adapter().folder, folder)
    return folder


@pytest.fixture(scope="session")
def edit_config() -> Callable[..., None]:
    """edit_config(folder, **fields): overwrite fields of adapter_config.json."""

    def edit(folder: Path, **fields: Any) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return edit


@pytest.fixture(scope="session")
def edit_tensors() -> Callable[[Path, ChangeTensors], None]:
    """edit_tensors(folder, change): rewrite adapter_model.safetensors with change(tensors)."""

    def edit(folder: Path, change: ChangeTensors) -> None:
        path = folder / "adapter_model.safetensors"
        save_file({name: value.contiguous() for name, value in change(load_file(path)).items()}, path)

    return edit
