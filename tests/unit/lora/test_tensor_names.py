"""Weights files that hold something else than LoRA matrices."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lora.errors import InvalidWeights, UnsupportedFeature
from lora.format import read_adapter

Q = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        (f"{Q}.lora_magnitude_vector", "use_dora"),
        (f"{Q}.lora_magnitude_vector.weight", "use_dora"),
        (f"{Q}.lora_B.bias", "lora_bias"),
        ("base_model.model.model.embed_tokens.lora_embedding_A", "LoRA on embeddings"),
        ("base_model.model.model.embed_tokens.base_layer.weight", "saved embeddings"),
        (
            "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta",
            "trainable_token_indices",
        ),
    ],
)
def test_tensors_of_an_unsupported_feature_are_refused_by_its_name(
    adapter_folder: Path, edit_tensors: Callable[..., None], name: str, feature: str
) -> None:
    edit_tensors(adapter_folder, lambda tensors: {**tensors, name: torch.ones(4, 4)})
    with pytest.raises(UnsupportedFeature, match=f"^{feature} is not supported"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {**t, "base_model.model.lm_head.weight": torch.ones(64, 32)}, "not LoRA tensors"),
        (lambda t: {**t, f"{Q}.lora_A.weight": torch.ones(128)}, "1-D tensors, as a sharded"),
        (lambda t: {**t, f"{Q}.lora_A.weight": torch.ones(4, 0)}, "none of them 0"),
        (lambda t: {**t, f"{Q}.lora_A.weight": torch.ones(4, 4, 2)}, "two dimensions"),
        (
            lambda t: {n: v for n, v in t.items() if n != f"{Q}.lora_B.weight"},
            "one of lora_A and lora_B is absent for",
        ),
        (lambda t: {**t, f"{Q}.lora_A.default.weight": torch.ones(4, 32)}, "two tensors for one matrix"),
    ],
)
def test_tensors_that_are_not_lora_matrices_are_refused(
    adapter_folder: Path, edit_tensors: Callable[..., None], change: Callable[..., Any], message: str
) -> None:
    edit_tensors(adapter_folder, change)
    with pytest.raises(InvalidWeights, match=message):
        read_adapter(adapter_folder)
