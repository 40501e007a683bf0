"""The modules of one group as one product, and what adapters make of it."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.models.adapter_batch import AdapterBatch
from engine.models.checkpoint import Checkpoint
from engine.models.linear import Linear, make_linear
from engine.models.module_groups import ModuleGroup, layer_group
from engine.modelspec import ModelSpec


class AdaptedLinear:
    """A product that makes the outputs of a group's modules side by side."""

    def __init__(self, group: ModuleGroup, linear: Linear) -> None:
        self._group = group
        self._linear = linear

    def __call__(self, x: Tensor, adapters: AdapterBatch | None) -> Tensor:
        """x [T, in] -> [T, out of all modules]."""
        y = self._linear(x)
        if adapters is not None:
            adapters.linear(self._group, x, y)
        return y


class Projection(AdaptedLinear):
    """Group `group` of one layer of a decoder."""

    def __init__(
        self,
        spec: ModelSpec,
        layer: int,
        weights: Checkpoint,
        group: str,
        bias: bool,
        transposed: bool = False,
    ) -> None:
        """transposed: the checkpoint keeps [in, out]."""
        modules = layer_group(spec, layer, group)
        shapes = spec.module_shapes()
        matrices, biases = [], []
        for name, module in zip(modules.names, spec.groups[group], strict=True):
            shape = shapes[module]
            stored = weights.take(f"{name}.weight", shape[::-1] if transposed else shape)
            matrices.append(stored.T.contiguous() if transposed else stored)
            if bias:
                biases.append(weights.take(f"{name}.bias", shape[:1]))
        super().__init__(modules, make_linear(joined(matrices), joined(biases) if bias else None))


def joined(tensors: list[Tensor]) -> Tensor:
    """Rows of all, one after another; no copy of a single one."""
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)
