"""The part of a layer that looks at each token alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from torch import Tensor
from torch.nn import functional as F

from engine.models.adapter_batch import AdapterBatch
from engine.models.projection import Projection

MLP: TypeAlias = Callable[[Tensor, AdapterBatch | None], Tensor]

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}
"""ModelSpec.activation -> function."""


class GatedMLP:
    """down(activation(gate(x)) * up(x)); gate and up are the two halves of one product."""

    def __init__(self, activation: str, gate_up: Projection, down: Projection) -> None:
        self._activation = ACTIVATIONS[activation]
        self._gate_up = gate_up
        self._down = down

    def __call__(self, x: Tensor, adapters: AdapterBatch | None) -> Tensor:
        gate, up = self._gate_up(x, adapters).chunk(2, dim=-1)
        return self._down(self._activation(gate) * up, adapters)


class PlainMLP:
    """down(activation(up(x)))."""

    def __init__(self, activation: str, up: Projection, down: Projection) -> None:
        self._activation = ACTIVATIONS[activation]
        self._up = up
        self._down = down

    def __call__(self, x: Tensor, adapters: AdapterBatch | None) -> Tensor:
        return self._down(self._activation(self._up(x, adapters)), adapters)
