"""Normalisation over the last dimension, its statistics taken in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.adapter_weights import NormWeights
from engine.models.adapter_batch import AdapterBatch
from engine.models.checkpoint import Checkpoint
from engine.modelspec import ModelSpec


class Norm(Protocol):
    """x [..., n] -> [..., n]."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def replaced(self, weights: NormWeights) -> Norm:
        """The same norm with other weights."""


LoadNorm: TypeAlias = Callable[[Checkpoint, str, int, float], Norm]
"""Takes weights, the module's name, the size of the last dimension, eps."""


class RMSNorm:
    """x / rms(x) * weight."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return self._weight * _over_rms(x, self._eps).to(x.dtype)

    def replaced(self, weights: NormWeights) -> RMSNorm:
        """See Norm."""
        return RMSNorm(weights.weight, self._eps)


class OffsetRMSNorm:
    """x / rms(x) * (1 + weight), the product in float32 too."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight = 1.0 + weight.to(torch.float32)
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return (_over_rms(x, self._eps) * self._weight).to(x.dtype)

    def replaced(self, weights: NormWeights) -> OffsetRMSNorm:
        """See Norm."""
        return OffsetRMSNorm(weights.weight, self._eps)


class LayerNorm:
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias."""

    def __init__(self, weight: Tensor, bias: Tensor | None, eps: float) -> None:
        self._weight = weight
        self._bias = bias
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self._weight.shape, self._weight, self._bias, self._eps)

    def replaced(self, weights: NormWeights) -> LayerNorm:
        """See Norm."""
        return LayerNorm(weights.weight, weights.bias, self._eps)


class AdaptedNorm:
    """A norm over the whole hidden state, whose weights an adapter may replace for its own rows."""

    def __init__(self, name: str, norm: Norm) -> None:
        self._name = name
        self._norm = norm

    def __call__(self, x: Tensor, adapters: AdapterBatch | None) -> Tensor:
        """x [T, hidden] -> [T, hidden]."""
        y = self._norm(x)
        if adapters is not None:
            adapters.norm(self._name, self._norm, x, y)
        return y


def adapted_norm(weights: Checkpoint, spec: ModelSpec, name: str, load: LoadNorm) -> AdaptedNorm:
    """Norm `name` of a decoder."""
    return AdaptedNorm(name, load(weights, name, spec.hidden_size, spec.rms_norm_eps))


def rms_norm(weights: Checkpoint, name: str, size: int, eps: float) -> Norm:
    """A LoadNorm."""
    return RMSNorm(weights.take(f"{name}.weight", (size,)), eps)


def offset_rms_norm(weights: Checkpoint, name: str, size: int, eps: float) -> Norm:
    """A LoadNorm."""
    return OffsetRMSNorm(weights.take(f"{name}.weight", (size,)), eps)


def layer_norm(weights: Checkpoint, name: str, size: int, eps: float) -> Norm:
    """A LoadNorm."""
    return LayerNorm(weights.take(f"{name}.weight", (size,)), weights.take(f"{name}.bias", (size,)), eps)


def _over_rms(x: Tensor, eps: float) -> Tensor:
    wide = x.to(torch.float32)
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
