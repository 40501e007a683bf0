"""Gemma 2 and 3: scaled embedding, norms before and after each part, windows in most layers, soft caps.

Gemma 3 adds a norm on each head of q and k and a rotation of its own for the layers with a window. Which
layers those are, the caps and the scales are facts of the ModelSpec.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.base import AttentionBackend
from engine.models.base import ForwardBatch
from engine.models.checkpoint import Checkpoint
from engine.models.llama import gated_mlp, rotary_attention
from engine.models.mlp import MLP
from engine.models.norms import AdaptedNorm, adapted_norm, offset_rms_norm
from engine.models.rope import Angles
from engine.models.self_attention import SelfAttention
from engine.models.stack import Rotations, StackedDecoder, TokenEmbedding, make_head
from engine.modelspec import ModelSpec


@dataclass(frozen=True, slots=True)
class SandwichLayer:
    """Attention and MLP, each between two norms and around a residual."""

    before_attention: AdaptedNorm
    attention: SelfAttention
    after_attention: AdaptedNorm
    before_mlp: AdaptedNorm
    mlp: MLP
    after_mlp: AdaptedNorm

    def __call__(
        self, x: Tensor, angles: Angles | None, batch: ForwardBatch, attention: AttentionBackend
    ) -> Tensor:
        own = batch.adapters
        seen = self.attention(self.before_attention(x, own), angles, batch, attention)
        x = x + self.after_attention(seen, own)
        return x + self.after_mlp(self.mlp(self.before_mlp(x, own), own), own)


def build(spec: ModelSpec, weights: Checkpoint, dtype: torch.dtype) -> StackedDecoder:
    """Raises BadWeights."""
    embedding = weights.take(f"{spec.names.embedding}.weight", (spec.vocab_size, spec.hidden_size))
    return StackedDecoder(
        embed=TokenEmbedding(embedding, spec.embedding_scale),
        rotations=Rotations(spec, dtype),
        layers=[_layer(spec, layer, weights) for layer in range(spec.num_layers)],
        norm=adapted_norm(weights, spec, spec.names.final_norm, offset_rms_norm),
        head=make_head(spec, weights, embedding),
    )


def _layer(spec: ModelSpec, layer: int, weights: Checkpoint) -> SandwichLayer:
    def norm(name: str) -> AdaptedNorm:
        return adapted_norm(weights, spec, f"{spec.layers_at}.{layer}.{name}", offset_rms_norm)

    return SandwichLayer(
        before_attention=norm(spec.names.before_attention),
        attention=rotary_attention(spec, layer, weights, offset_rms_norm),
        after_attention=norm(spec.names.after_attention),
        before_mlp=norm(spec.names.before_mlp),
        mlp=gated_mlp(spec, layer, weights),
        after_mlp=norm(spec.names.after_mlp),
    )
