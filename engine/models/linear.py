"""The seam of every matrix product with base weights: a faster kernel is another class behind `Linear`."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

_TYPICAL_ROWS = 64
"""Rows the packed layout is made for; it is no worse for one row or for hundreds."""


class Linear(Protocol):
    """y = x W^T + b, for x [rows, in] in the model's dtype; y [rows, out] is the caller's to change."""

    def __call__(self, x: Tensor) -> Tensor: ...


class DenseLinear:
    """Weight [out, in] as it lies in memory, through torch."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight, self._bias)


class PackedLinear:
    """Weight put once into oneDNN's own layout, which torch would otherwise do anew at each call."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _TYPICAL_ROWS)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return product


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The best product for these weights on this machine."""
    if weight.dtype is torch.bfloat16 and weight.device.type == "cpu" and _packs_bfloat16():
        return PackedLinear(weight, bias)
    return DenseLinear(weight, bias)


def _packs_bfloat16() -> bool:
    return torch._C._has_mkldnn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
