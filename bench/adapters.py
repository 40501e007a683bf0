"""Random adapters on every linear module: in memory for an engine, in a folder for a server."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from engine import AdapterWeights, LoraPair, ModelSpec


def random_adapter(spec: ModelSpec, rank: int, seed: int) -> AdapterWeights:
    """Deltas small enough to leave the numbers of a real model finite."""
    random_ = torch.Generator().manual_seed(seed)
    return AdapterWeights(
        f"sha256:{seed}",
        {
            name: LoraPair(
                torch.randn(rank, width, generator=random_) * 0.02,
                torch.randn(out, rank, generator=random_) * 0.02,
                1.0,
            )
            for name, (out, width) in spec.linear_modules.items()
        },
    )


def write_adapter(folder: Path, base: str, spec: ModelSpec, rank: int, seed: int) -> None:
    """The same as random_adapter, as a folder that PEFT would have written for the model named `base`."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": rank,
        "target_modules": sorted({name.rpartition(".")[2] for name in spec.linear_modules}),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = {}
    for name, pair in random_adapter(spec, rank, seed).modules.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = pair.a.contiguous()
        tensors[f"base_model.model.{name}.lora_B.weight"] = pair.b.contiguous()
    save_file(tensors, folder / "adapter_model.safetensors")
