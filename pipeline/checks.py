"""What must hold of a trained adapter before anyone else sees it. Runs in the trainer process (torch)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from pipeline.errors import AdapterUnsound


def check_losses(losses: Sequence[float]) -> None:
    """Raises: AdapterUnsound when there is no loss, one is not finite, or all are zero."""
    if not losses:
        raise AdapterUnsound("the run made no step")
    bad = [step for step, loss in enumerate(losses, start=1) if not math.isfinite(loss)]
    if bad:
        raise AdapterUnsound(f"the loss is not finite at step {bad[0]}; allowed: finite")
    if all(loss == 0 for loss in losses):
        raise AdapterUnsound("the loss is 0 at every step: no token was trained on")


def check_tensors(tensors: Iterable[tuple[str, torch.Tensor]]) -> Mapping[str, float]:
    """Every LoRA tensor finite, every lora_B moved away from zero; returns the smallest and largest B norm.

    Raises: AdapterUnsound naming the first tensor at fault.
    """
    norms: list[float] = []
    for name, tensor in tensors:
        if "lora_" not in name:
            continue
        if not bool(torch.isfinite(tensor).all()):
            raise AdapterUnsound(f"{name} holds values that are not finite")
        if "lora_B" in name:
            norm = float(tensor.detach().float().norm())
            if norm == 0:
                raise AdapterUnsound(f"{name} is still zero: training did not reach it")
            norms.append(norm)
    if not norms:
        raise AdapterUnsound("the model holds no lora_B tensor")
    return {"lora_b_min": min(norms), "lora_b_max": max(norms)}


def check_stops(model: Any, probes: Sequence[Sequence[int]], least: float = 0.5) -> Mapping[str, float]:
    """Training has not unlearnt where an answer ends; returns the mean probability of the stop token.

    Each probe ends with its stop token; `model` is a PEFT model. Raises: AdapterUnsound when the adapter
    gives that token less than `least` times the probability the base gives it.
    """
    if not probes:
        return {}
    trained = _stop_probability(model, probes)
    with model.disable_adapter():
        base = _stop_probability(model, probes)
    if trained < least * base:
        raise AdapterUnsound(
            f"the mean probability of ending a wanted answer fell from {base:.3g} to {trained:.3g}; "
            f"allowed: at least {least:g} times the base's"
        )
    return {"stop_probability": trained, "stop_probability_base": base}


def _stop_probability(model: Any, probes: Sequence[Sequence[int]]) -> float:
    model.eval()
    total = 0.0
    with torch.no_grad():
        for ids in probes:
            known = torch.tensor([list(ids[:-1])], device=model.device)
            last = model(input_ids=known, logits_to_keep=1).logits[0, -1].float()
            total += float(last.softmax(-1)[ids[-1]])
    return total / len(probes)


def stamp_base(folder: Path, base_name: str, base_digest: str) -> None:
    """Write the base's name and digest where PEFT put the path the model happened to be loaded from."""
    path = folder / "adapter_config.json"
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = base_name
    config["revision"] = base_digest
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
