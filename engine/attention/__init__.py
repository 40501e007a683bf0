"""Attention backends by name, imported when asked for. `reference` is always right: it is the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import torch

    from engine.attention.base import PagedAttention
    from engine.modelspec import ModelSpec

__all__ = ["BACKENDS", "create_attention"]

BACKENDS: Mapping[str, str] = {"reference": "engine.attention.reference"}
"""Name -> module whose `create(spec, num_blocks, dtype)` builds the backend."""


def create_attention(name: str, spec: ModelSpec, num_blocks: int, dtype: torch.dtype) -> PagedAttention:
    """The backend `name` with a cache of `num_blocks` blocks for every layer of `spec`."""
    return cast("PagedAttention", import_module(BACKENDS[name]).create(spec, num_blocks, dtype))
