"""Attention over plain tensors: the scale of the scores, their soft cap, the mask. Knows no cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.modelspec import ModelSpec


@dataclass(frozen=True, slots=True)
class Scores:
    """scale: factor of q k; None for head_dim ** -0.5. softcap: scores become cap * tanh(score / cap)."""

    scale: float | None = None
    softcap: float | None = None

    @classmethod
    def of(cls, spec: ModelSpec) -> Self:
        """Those of a model."""
        return cls(spec.query_scale, spec.attention_softcap)

    def causal(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [n, heads, head_dim] over k, v [n, kv_heads, head_dim] of the same tokens, up to its own."""
        if self.softcap is not None:
            return self.masked(q, k, v, torch.ones(len(q), len(q), dtype=torch.bool).tril())
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale, enable_gqa=True)
        return seen[0].transpose(0, 1)

    def masked(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """q [n, heads, head_dim] over k, v [m, kv_heads, head_dim] where mask [n, m] is set (None: all)."""
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        return self.attend(q, k, v, mask)[0].transpose(0, 1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """q [B, heads, n, head_dim] over k, v [B, kv_heads, m, head_dim]; mask broadcasts to [B, 1, n, m]."""
        if self.softcap is None:
            gqa = q.shape[1] != k.shape[1]
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale, enable_gqa=gqa)
        group = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        scores = torch.tanh((q @ k.mT).to(torch.float32) * (scale / self.softcap)) * self.softcap
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        return scores.softmax(-1).to(v.dtype) @ v
