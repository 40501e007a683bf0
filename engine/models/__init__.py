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
    "phi3": "engine.models.llama",
    "gemma2": "engine.models.gemma",
    "gemma3": "engine.models.gemma",
    "gpt2": "engine.models.gpt2",
    "opt": "engine.models.gpt2",
    "mixtral": "engine.models.mixture",
    "qwen3_moe": "engine.models.mixture",
}
"""Family of a ModelSpec -> module whose `build(spec, weights, dtype)` makes its decoder."""


def load_decoder(folder: Path, spec: ModelSpec, dtype: torch.dtype) -> Decoder:
    """Read the weights of `folder` in `dtype`. Raises BadWeights."""
    from engine.models.checkpoint import Checkpoint

    module = import_module(DECODERS[spec.family])
    with Checkpoint(folder, dtype, root=spec.layers_at.partition(".")[0]) as weights:
        decoder = cast("Decoder", module.build(spec, weights, dtype))
        weights.expect_empty()
    return decoder
