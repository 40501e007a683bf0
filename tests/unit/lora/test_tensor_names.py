"""Names of tensors: every spelling of one part is read as it, everything else is refused."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lora.errors import InvalidWeights
from lora.format import read_adapter
from lora.safetensors_header import TensorInfo
from lora.tensor_names import Part, sort_tensors

Q = "base_model.model.model.layers.0.self_attn.q_proj"
TABLE = "base_model.model.model.embed_tokens"


def info(name: str, shape: tuple[int, ...] = (4, 4)) -> TensorInfo:
    return TensorInfo(name, "F32", shape, 0, 64)


def sort(*names: str) -> dict[str, dict[Part, str]]:
    named = sort_tensors({name: info(name) for name in names})
    return {
        module: {part: tensor.name for part, tensor in parts.items()}
        for module, parts in named.modules.items()
    }


@pytest.mark.parametrize(
    ("name", "module", "part", "mapped"),
    [
        (f"{Q}.lora_B.bias", "model.layers.0.self_attn.q_proj", Part.B_BIAS, ()),
        (f"{Q}.lora_B.default.bias", "model.layers.0.self_attn.q_proj", Part.B_BIAS, (".default",)),
        (f"{Q}.lora_magnitude_vector", "model.layers.0.self_attn.q_proj", Part.MAGNITUDE, ()),
        (
            f"{Q}.lora_magnitude_vector.weight",
            "model.layers.0.self_attn.q_proj",
            Part.MAGNITUDE,
            (".lora_magnitude_vector.weight",),
        ),
        (
            f"{Q}.lora_magnitude_vector.default.weight",
            "model.layers.0.self_attn.q_proj",
            Part.MAGNITUDE,
            (".default", ".lora_magnitude_vector.weight"),
        ),
        (f"{Q}.base_layer.bias", "model.layers.0.self_attn.q_proj", Part.BIAS, ()),
        (f"{Q}.bias", "model.layers.0.self_attn.q_proj", Part.BIAS, ()),
        (f"{TABLE}.base_layer.weight", "model.embed_tokens", Part.BASE_WEIGHT, ()),
        (f"{TABLE}.original_module.weight", "model.embed_tokens", Part.BASE_WEIGHT, ()),
        (f"{TABLE}.token_adapter.base_layer.weight", "model.embed_tokens", Part.BASE_WEIGHT, ()),
        (f"{TABLE}.token_adapter.trainable_tokens_delta", "model.embed_tokens", Part.TOKENS, ()),
        ("base_model.model.lm_head.weight", "lm_head", Part.WEIGHT, ()),
        ("base_model.model.lm_head.modules_to_save.default.weight", "lm_head", Part.WEIGHT, ()),
        ("lm_head.weight", "lm_head", Part.WEIGHT, ("base_model.model.* is missing",)),
        ("base_model.model._orig_mod.lm_head.weight", "lm_head", Part.WEIGHT, ("_orig_mod",)),
        (
            "_orig_mod.base_model.model.model._fsdp_wrapped_module.norm.weight",
            "model.norm",
            Part.WEIGHT,
            ("_fsdp_wrapped_module", "_orig_mod"),
        ),
    ],
)
def test_every_spelling_of_a_part_is_read(
    name: str, module: str, part: Part, mapped: tuple[str, ...]
) -> None:
    named = sort_tensors({name: info(name)})
    assert {found: set(parts) for found, parts in named.modules.items()} == {module: {part}}
    assert named.mapped == mapped


@pytest.mark.parametrize("side", ["", ".default"])
def test_pairs_are_found_with_and_without_the_adapters_name(side: str) -> None:
    names = [f"{Q}.lora_A{side}.weight", f"{Q}.lora_B{side}.weight"]
    assert sort(*names) == {"model.layers.0.self_attn.q_proj": {Part.A: names[0], Part.B: names[1]}}
    tables = [f"{TABLE}.lora_embedding_A{side}", f"{TABLE}.lora_embedding_B{side}"]
    assert sort(*tables) == {"model.embed_tokens": {Part.EMBEDDING_A: tables[0], Part.EMBEDDING_B: tables[1]}}


@pytest.mark.parametrize("name", ["weight", "base_model.model.weight", f"{Q}.lora_E", f"{Q}.lora_diag", "x"])
def test_what_is_no_part_of_a_module_is_refused(name: str) -> None:
    with pytest.raises(InvalidWeights, match=f"not tensors of a LoRA adapter: {re.escape(name)}"):
        sort_tensors({name: info(name)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {**t, f"{Q}.lora_A.weight": torch.ones(128)}, "1-D tensors, as a sharded"),
        (lambda t: {**t, f"{Q}.lora_B.weight": torch.ones(128)}, "1-D tensors, as a sharded"),
        (lambda t: {**t, f"{Q}.lora_A.weight": torch.ones(4, 0)}, "none of them 0"),
        (lambda t: {**t, f"{Q}.lora_A.weight": torch.ones(())}, "two dimensions"),
        (lambda t: {**t, f"{Q}.lora_A.weight": torch.ones(4, 4, 2)}, "two dimensions"),
        (
            lambda t: {n: v for n, v in t.items() if n != f"{Q}.lora_B.weight"},
            "one of lora_A and lora_B is absent for",
        ),
        (lambda t: {f"{TABLE}.lora_embedding_A": torch.ones(4, 64)}, "one of lora_embedding_A and"),
        (lambda t: {**t, f"{Q}.lora_A.default.weight": torch.ones(4, 32)}, "two tensors for lora_A"),
        (
            lambda t: {**t, f"{Q}.bias": torch.ones(32), f"{Q}.base_layer.bias": torch.ones(32)},
            "two tensors for bias",
        ),
        (
            lambda t: {
                **t,
                "base_model.model.lm_head.weight": torch.ones(64, 32),
                "base_model.model.lm_head.modules_to_save.weight": torch.zeros(64, 32),
            },
            "two tensors for one module differ",
        ),
        (lambda t: {}, "it holds no tensors"),
    ],
)
def test_tensors_that_make_no_adapter_are_refused(
    adapter_folder: Path, edit_tensors: Callable[..., None], change: Callable[..., Any], message: str
) -> None:
    edit_tensors(adapter_folder, change)
    with pytest.raises(InvalidWeights, match=message):
        read_adapter(adapter_folder)


def test_a_tensor_saved_under_two_names_counts_once(
    adapter_folder: Path, edit_tensors: Callable[..., None]
) -> None:
    names = ("base_model.model.lm_head.weight", "base_model.model.lm_head.modules_to_save.weight")
    edit_tensors(adapter_folder, lambda t: {**t, **{name: torch.ones(64, 32) for name in names}})
    assert read_adapter(adapter_folder).modules["lm_head"][Part.WEIGHT].name == names[0]
