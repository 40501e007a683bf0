"""Paged-KV inference engine with LoRA slots: a library of its own that knows no HTTP, no SQL and no Ray.

Names are imported on first use, so a process that only wants records or the tokenizer never loads torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.adapter_weights import AdapterWeights, LoraPair
    from engine.async_engine import AsyncEngine
    from engine.config import BLOCK_SIZE, EngineConfig
    from engine.detokenizer import Delta, Detokenizer
    from engine.embedding import Embedder
    from engine.engine import Engine
    from engine.errors import EngineError
    from engine.modelspec import ModelSpec, read_spec
    from engine.records import (
        AdapterInfo,
        EngineStats,
        FinishReason,
        Request,
        RequestStats,
        SamplingParams,
        TokenEvent,
        TokenLogprob,
    )
    from engine.tokenizer import Tokenizer

_HOME = {
    "AdapterInfo": "engine.records",
    "AdapterWeights": "engine.adapter_weights",
    "AsyncEngine": "engine.async_engine",
    "BLOCK_SIZE": "engine.config",
    "Delta": "engine.detokenizer",
    "Detokenizer": "engine.detokenizer",
    "Embedder": "engine.embedding",
    "Engine": "engine.engine",
    "EngineConfig": "engine.config",
    "EngineError": "engine.errors",
    "EngineStats": "engine.records",
    "FinishReason": "engine.records",
    "LoraPair": "engine.adapter_weights",
    "ModelSpec": "engine.modelspec",
    "Request": "engine.records",
    "RequestStats": "engine.records",
    "SamplingParams": "engine.records",
    "TokenEvent": "engine.records",
    "TokenLogprob": "engine.records",
    "Tokenizer": "engine.tokenizer",
    "read_spec": "engine.modelspec",
}

__all__ = [
    "BLOCK_SIZE",
    "AdapterInfo",
    "AdapterWeights",
    "AsyncEngine",
    "Delta",
    "Detokenizer",
    "Embedder",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineStats",
    "FinishReason",
    "LoraPair",
    "ModelSpec",
    "Request",
    "RequestStats",
    "SamplingParams",
    "TokenEvent",
    "TokenLogprob",
    "Tokenizer",
    "read_spec",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
