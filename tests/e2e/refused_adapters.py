"""Folders that no server may take: a small sound adapter each, and one thing wrong with it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

WIDTH = 576
WEIGHTS = "adapter_model.safetensors"
MODULE = "base_model.model.model.layers.0.self_attn.q_proj"


def write_small(folder: Path, base: str, rank: int = 4) -> None:
    """One module of the first layer."""
    folder.mkdir(parents=True)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": rank,
        "target_modules": ["q_proj"],
        "layers_to_transform": [0],
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    values = np.random.default_rng(rank)
    save_file(
        {
            f"{MODULE}.lora_A.weight": values.standard_normal((rank, WIDTH)).astype(np.float32),
            f"{MODULE}.lora_B.weight": values.standard_normal((WIDTH, rank)).astype(np.float32),
        },
        folder / WEIGHTS,
    )


def configured(folder: Path, **fields: Any) -> None:
    """Other fields in its configuration."""
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def tensors(folder: Path, change: Callable[[str, Any], tuple[str, Any]]) -> None:
    """Other names or values in its weights."""
    found = load_file(folder / WEIGHTS)
    save_file(dict(change(name, value) for name, value in found.items()), folder / WEIGHTS)


def _with(**fields: Any) -> Callable[[Path], None]:
    return lambda folder: configured(folder, **fields)


def _large_rank(folder: Path) -> None:
    configured(folder, r=128)
    tensors(folder, lambda name, value: (name, np.tile(value, (32, 1) if "lora_A" in name else (1, 32))))


def _foreign_names(folder: Path) -> None:
    tensors(folder, lambda name, value: (name.replace(".model.layers", ".foo.layers"), value))


def _no_config(folder: Path) -> None:
    (folder / "adapter_config.json").unlink()


def _no_json(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{")


def _spoiled(folder: Path) -> None:
    def spoil(name: str, value: Any) -> tuple[str, Any]:
        value[0, 0] = np.nan
        return name, value

    tensors(folder, spoil)


def _cut(folder: Path) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[: len(whole) * 6 // 10])


def _huge_header(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", 1 << 60) + b"{}")


def _narrow(folder: Path) -> None:
    tensors(folder, lambda name, value: (name, value[:, :64].copy() if "lora_A" in name else value))


def _pickled(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")


def _zero(folder: Path) -> None:
    tensors(folder, lambda name, value: (name, value * 0 if "lora_B" in name else value))


@dataclass(frozen=True)
class Refused:
    """What is done to the folder, the code it is refused with, and words of the message."""

    spoil: Callable[[Path], None]
    code: str
    words: tuple[str, ...] = ()
    status: int = 400


REFUSED: dict[str, Refused] = {
    "rank beyond the limit": Refused(_large_rank, "rank_too_large", ("128", "64")),
    "names of another model": Refused(_foreign_names, "unmatched_tensors", ("foo.layers.0",)),
    "another base": Refused(_with(base_model_name_or_path="llama"), "wrong_base", ("llama",)),
    "another revision": Refused(_with(revision="sha256:" + "0" * 64), "wrong_base"),
    "another width": Refused(_narrow, "wrong_shape", ("[4, 64]", "[4, 576]")),
    "cut off": Refused(_cut, "damaged_weights"),
    "a huge header": Refused(_huge_header, "damaged_weights", (str(1 << 60),)),
    "no configuration": Refused(_no_config, "adapter_not_found", status=404),
    "a configuration that is no JSON": Refused(_no_json, "invalid_config"),
    "NaN": Refused(_spoiled, "not_finite"),
    "a pickle": Refused(_pickled, "unsupported_feature", ("safetensors",)),
    "a feature that is not served": Refused(_with(use_qalora=True), "unsupported_feature", ("use_qalora",)),
    "weights for an altered base": Refused(
        _with(init_lora_weights="pissa"), "unsupported_feature", ("pissa",)
    ),
    "nothing that shows": Refused(_zero, "identical_to_base"),
    "no DoRA magnitudes": Refused(_with(use_dora=True), "missing_tensors"),
}
