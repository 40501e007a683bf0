"""Rotary embedding of a GGUF file as the `rope_parameters` of a config.json."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.errors import UnsupportedModel
from engine.gguf_meta import GgufMeta, decimal

FREQUENCIES = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_SCALINGS = ("none", "linear", "yarn")


def whole_head(meta: GgufMeta, head_dim: int, theta: float = 10000.0) -> dict[str, Any]:
    """Where all of a head turns, by a base of `theta` unless the file names one.

    Raises UnsupportedModel where a part turns, or for an unknown scaling.
    """
    meta.expect("rope.dimension_count", head_dim)
    found = {"rope_theta": meta.decimal("rope.freq_base", theta), **_scaling(meta)}
    if FREQUENCIES not in meta.shapes:
        return found
    if found["rope_type"] != "default":
        raise UnsupportedModel(f"{FREQUENCIES} beside {found['rope_type']} RoPE scaling is not supported")
    factors = meta.numbers(FREQUENCIES)
    if len(factors) != head_dim // 2:
        raise UnsupportedModel(f"{FREQUENCIES} has {len(factors)} numbers; this head needs {head_dim // 2}")
    return {**found, **_llama3(factors, found["rope_theta"])}


def longrope(meta: GgufMeta, head_dim: int) -> dict[str, Any]:
    """Where a part of a head may turn, by factors for short and for long texts."""
    turned = int(meta.get("rope.dimension_count", head_dim))
    found: dict[str, Any] = {"rope_type": "default", "rope_theta": meta.decimal("rope.freq_base", 10000.0)}
    if turned != head_dim:
        found["partial_rotary_factor"] = turned / head_dim
    meta.expect("rope.scaling.type", "none", "longrope")
    scale = meta.get("rope.scaling.attn_factor")
    if LONG in meta.shapes and SHORT in meta.shapes:
        found |= {
            "rope_type": "longrope",
            "long_factor": meta.numbers(LONG),
            "short_factor": meta.numbers(SHORT),
        }
        if scale is not None:
            found["attention_factor"] = decimal(scale)
    return found


def _scaling(meta: GgufMeta) -> dict[str, Any]:
    kind = meta.get("rope.scaling.type", "none")
    if kind not in _SCALINGS:
        allowed = ", ".join(_SCALINGS)
        raise UnsupportedModel(f"GGUF RoPE scaling {kind} is not supported; supported: {allowed}")
    meta.skip("rope.scaling.finetuned")
    if kind == "none":
        return {"rope_type": "default"}
    factor = meta.decimal("rope.scaling.factor", 1.0)
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    meta.expect("rope.scaling.attn_factor", 1.0)
    original = meta.get("rope.scaling.original_context_length", meta.need("context_length"))
    found = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": int(original)}
    for key in ("beta_fast", "beta_slow"):
        if meta.get(f"rope.scaling.yarn_{key}") is not None:
            found[key] = meta.decimal(f"rope.scaling.yarn_{key}", 0.0)
    return found


def _llama3(factors: list[float], theta: float) -> dict[str, Any]:
    """Llama 3's scaling, which the file holds as a divisor of each frequency; checked against them all."""
    scaling = {"rope_type": "llama3", "factor": max(factors), **_LLAMA3}
    low, high, original = _LLAMA3.values()
    for i, met in enumerate(factors):
        turns = original / (2 * math.pi * theta ** (i / len(factors)))
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        want = 1 / ((1 - smooth) / scaling["factor"] + smooth)
        if not np.isclose(met, want, rtol=1e-4):
            raise UnsupportedModel(f"{FREQUENCIES}[{i}] is {met}; Llama 3's scaling makes it {want:.6g}")
    return scaling
