"""Decoders by family: one row each, imported when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import torch

    from engine.models.base import Decoder
    from engine.modelspec import ModelSpec

__all__ = ["DECODERS", "load_decoder"]

DECODERS: Mapping[str, str] = {
    "llama": "engine.models.llama",
    "mistral": "engine.models.llama",
    "qwen2": "engine.models.llama",
    "qwen3": "engine.models.llama",
}
"""Family of a ModelSpec -> module whose `load(folder, spec, dtype)` builds its decoder."""


def load_decoder(folder: Path, spec: ModelSpec, dtype: torch.dtype) -> Decoder:
    """Read the weights of `folder` in `dtype`. Raises BadWeights."""
    return cast("Decoder", import_module(DECODERS[spec.family]).load(folder, spec, dtype))
