"""The seam of every matrix product with base weights: a faster kernel is another class behind `Linear`."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor
from torch.nn import functional as F


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


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The best product for these weights on this machine."""
    return DenseLinear(weight, bias)
