"""Adapters on each family beyond the Llama one: the same logits as PEFT's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.modelspec import ModelSpec, read_spec
from tests.unit.engine.adapted import TOLERANCE, Adapted, make_rows, steps
from tests.unit.engine.conftest import TinyModel

# PEFT 0.21 asks transformers 5 for an attribute under its old name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")

Tiny = Callable[[str], TinyModel]
Blocks = Callable[[int], list[int]]
FAMILIES = ["gemma2", "gemma3", "phi3", "gpt2", "opt", "mixtral", "qwen3-moe"]


def adapters(spec: ModelSpec) -> dict[int, dict[str, Any]]:
    """One adapter on the first and last modules, one on all, one on the last alone."""
    modules = [module for group in spec.groups.values() for module in group]
    flipped = spec.family == "gpt2"
    return {
        1: {"r": 4, "lora_alpha": 8, "target_modules": [modules[0], modules[-1]], "fan_in_fan_out": flipped},
        2: {"r": 8, "lora_alpha": 4, "target_modules": modules, "fan_in_fan_out": flipped},
        3: {"r": 16, "lora_alpha": 32, "target_modules": modules[-1:], "fan_in_fan_out": flipped},
    }


@pytest.mark.parametrize("name", FAMILIES)
def test_mixed_batch_equals_peft(tiny: Tiny, blocks: Blocks, name: str) -> None:
    model = tiny(name)
    adapted = Adapted(model, adapters(read_spec(model.folder)))
    runner = adapted.load(model.runner(), 1, 2, 3)
    rows = make_rows(blocks, [2, 0, 1, 3])
    want = torch.stack([adapted.logits(row.adapter_slot, row.token_ids) for row in rows])
    torch.testing.assert_close(steps(runner, rows), want, **TOLERANCE)
    assert (want[0] - adapted.logits(0, rows[0].token_ids)).abs().max() > 0.1
