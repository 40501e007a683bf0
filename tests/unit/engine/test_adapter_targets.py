"""What an adapter may change is what transformers' own modules have."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.modelspec import read_spec
from tests.unit.engine.conftest import TinyModel
from tests.unit.engine.family_variants import FAMILY_VARIANTS

LLAMAS = ["llama", "llama-biased", "llama-tied", "mistral", "qwen2", "qwen3"]


@pytest.mark.parametrize("name", [*LLAMAS, *FAMILY_VARIANTS])
def test_targets_are_the_modules_of_transformers(tiny: Callable[[str], TinyModel], name: str) -> None:
    model = tiny(name)
    targets, hidden = read_spec(model.folder).adapter_targets, model.reference.config.hidden_size
    linear, norms, biases = {}, {}, {}
    for key, module in model.reference.named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, torch.nn.Linear) or hasattr(module, "nf"):
            linear[key] = tuple(weight.shape[:: -1 if hasattr(module, "nf") else 1])
        elif weight is not None and tuple(weight.shape) == (hidden,):
            norms[key] = hidden
        if getattr(module, "bias", None) is not None:
            biases[key] = len(module.bias)
    assert (targets.linear, targets.norms, targets.biases) == (linear, norms, biases)
    table = model.reference.get_input_embeddings()
    assert model.reference.get_submodule(targets.embedding) is table
    assert (targets.vocab, targets.hidden) == tuple(table.weight.shape)
    assert targets.tied == (model.reference.lm_head.weight is table.weight)
