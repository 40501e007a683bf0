"""One layer's attention around the backend: projections, head norms, rotation."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.attention.base import AttentionBackend
from engine.models.base import ForwardBatch
from engine.models.norms import Norm
from engine.models.projection import Projection
from engine.models.rope import Angles, rotate
from engine.modelspec import ModelSpec


class SelfAttention:
    """Fused projection, norms on each head where the family has them, rotation where there are angles."""

    def __init__(
        self,
        spec: ModelSpec,
        layer: int,
        qkv: Projection,
        out: Projection,
        head_norms: tuple[Norm, Norm] | None,
    ) -> None:
        self._layer = layer
        self._head_dim = spec.head_dim
        self._widths = [
            heads * spec.head_dim for heads in (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
        ]
        self._qkv = qkv
        self._out = out
        self._head_norms = head_norms

    def __call__(
        self, x: Tensor, angles: Angles | None, batch: ForwardBatch, attention: AttentionBackend
    ) -> Tensor:
        parts = torch.split(self._qkv(x, batch.adapters), self._widths, dim=-1)
        q, k, v = (part.view(len(x), -1, self._head_dim) for part in parts)
        if self._head_norms is not None:
            q, k = self._head_norms[0](q), self._head_norms[1](k)
        if angles is not None:
            q, k = rotate(q, *angles), rotate(k, *angles)
        seen = attention.attend(self._layer, q, k, v, batch.attention)
        return self._out(seen.flatten(1), batch.adapters)
