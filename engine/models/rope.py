"""Rotary position embedding: inverse frequencies by kind, and the rotation of queries and keys.

The formulas follow transformers' modeling_rope_utils, operation by operation, so float32 results agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

from engine.ropespec import RopeSpec

Options = Mapping[str, Any]
Angles: TypeAlias = tuple[Tensor, Tensor]
"""cos and sin of a batch of positions, [T, 1, turned part of a head] each."""


class Rope:
    """cos and sin of a batch of positions, computed once a step and shared by all layers.

    inverse: float32 [turned part of head_dim / 2], radians a position. scale: factor of cos and sin.
    """

    def __init__(self, spec: RopeSpec, head_dim: int) -> None:
        self.inverse, self.scale = _KINDS[spec.kind](spec, int(head_dim * spec.partial))

    def angles(self, positions: Tensor, dtype: torch.dtype) -> Angles:
        """positions [T] int64 -> angles in `dtype` (the 1 spans the heads)."""
        half = positions.to(torch.float32)[:, None] * self.inverse
        whole = torch.cat((half, half), dim=-1)[:, None, :]
        return (whole.cos() * self.scale).to(dtype), (whole.sin() * self.scale).to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [T, heads, head_dim] turned by its positions' angles; what they leave out of a head stays."""
    width = cos.shape[-1]
    if width < x.shape[-1]:
        return torch.cat((rotate(x[..., :width], cos, sin), x[..., width:]), dim=-1)
    half = width // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def _powers(theta: float, dim: int) -> Tensor:
    exponents = torch.arange(0, dim, 2, dtype=torch.int64).to(torch.float32) / dim
    return torch.pow(theta, exponents)


def _default(spec: RopeSpec, dim: int) -> tuple[Tensor, float]:
    return 1.0 / _powers(spec.theta, dim), 1.0


def _linear(spec: RopeSpec, dim: int) -> tuple[Tensor, float]:
    return 1.0 / _powers(spec.theta, dim) / float(spec.options["factor"]), 1.0


def _llama3(spec: RopeSpec, dim: int) -> tuple[Tensor, float]:
    """Long wavelengths divided by `factor`, short ones kept, a smooth passage between."""
    factor, low, high = (float(spec.options[k]) for k in ("factor", "low_freq_factor", "high_freq_factor"))
    original = float(spec.options["original_max_position_embeddings"])
    inverse = 1.0 / _powers(spec.theta, dim)
    wavelength = 2 * math.pi / inverse
    scaled = torch.where(wavelength > original / low, inverse / factor, inverse)
    smooth = (original / wavelength - low) / (high - low)
    between = (1 - smooth) * scaled / factor + smooth * scaled
    middle = (wavelength >= original / high) & (wavelength <= original / low)
    return torch.where(middle, between, scaled), 1.0


def _yarn(spec: RopeSpec, dim: int) -> tuple[Tensor, float]:
    """NTK by parts (arXiv 2309.00071): interpolate slow dimensions, keep fast ones, ramp between."""
    options = spec.options
    factor, original = float(options["factor"]), float(options["original_max_position_embeddings"])
    low = _correction_dim(float(options.get("beta_fast") or 32), dim, spec.theta, original)
    high = _correction_dim(float(options.get("beta_slow") or 1), dim, spec.theta, original)
    if options.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    keep = 1 - torch.clamp((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low), 0, 1)
    powers = _powers(spec.theta, dim)
    return (1.0 / (factor * powers)) * (1 - keep) + (1.0 / powers) * keep, _yarn_scale(options, factor)


def _correction_dim(rotations: float, dim: int, theta: float, original: float) -> float:
    return (dim * math.log(original / (rotations * 2 * math.pi))) / (2 * math.log(theta))


def _yarn_scale(options: Options, factor: float) -> float:
    def mscale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    given = options.get("attention_factor")
    if given is not None:
        return float(given)
    weight, weight_all = options.get("mscale"), options.get("mscale_all_dim")
    if weight and weight_all:
        return mscale(float(weight)) / mscale(float(weight_all))
    return mscale(1.0)


def _longrope(spec: RopeSpec, dim: int) -> tuple[Tensor, float]:
    """A factor for each frequency (arXiv 2402.13753), of one set for short and of another for long texts."""
    original = float(spec.options["original_max_position_embeddings"])
    factors = spec.options["long_factor" if spec.length > original else "short_factor"]
    factor, scale = float(spec.options["factor"]), spec.options.get("attention_factor")
    if scale is None:
        scale = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return 1.0 / (torch.tensor(factors, dtype=torch.float32) * _powers(spec.theta, dim)), float(scale)


_KINDS: Mapping[str, Callable[[RopeSpec, int], tuple[Tensor, float]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _default,  # differs only past max_position, which is never served
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
