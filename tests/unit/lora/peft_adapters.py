"""Adapters that PEFT itself makes, applies and saves, of tiny random models."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import torch

from tests.unit.engine.conftest import TinyModel


@dataclass(frozen=True)
class PeftAdapter:
    """One adapter: PEFT's own model with it, and the folder it was saved to."""

    model: Any
    folder: Path

    def logits(self, ids: list[int]) -> torch.Tensor:
        """PEFT's logits [len(ids), vocab] of one sequence in one piece."""
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found: torch.Tensor = self.model(input_ids=torch.tensor([ids])).logits[0]
        return found


def make_adapter(model: TinyModel, folder: Path, seed: int, config: Mapping[str, Any]) -> PeftAdapter:
    """Wrap a copy of the model, move every trainable parameter away from its start, save."""
    torch.manual_seed(seed)
    base = type(model.reference)(model.reference.config)
    base.load_state_dict(model.reference.state_dict())
    base.name_or_path = base.config.name_or_path = str(model.folder)
    settings = peft.LoraConfig(**{"task_type": "CAUSAL_LM", "init_lora_weights": False, **config})
    with warnings.catch_warnings(), torch.no_grad():
        # PEFT asks transformers 5 for an attribute under its old name, and tells what it saves unasked.
        warnings.simplefilter("ignore")
        wrapped = peft.get_peft_model(base, settings).eval()
        for name, parameter in wrapped.named_parameters():
            if parameter.requires_grad:
                _move(name, parameter)
        wrapped.save_pretrained(folder)
    return PeftAdapter(wrapped, folder)


def _move(name: str, parameter: torch.Tensor) -> None:
    """Far enough to be told from the start, near enough to leave the numbers in proportion."""
    if "lora_embedding_" in name:
        parameter.mul_(0.4)
    elif "lora_" not in name or not parameter.any():
        parameter.add_(torch.randn_like(parameter) * 0.2)
    elif "magnitude" in name:
        parameter.mul_(1 + torch.randn_like(parameter) * 0.2)
