"""GPT-2 and OPT: learned positions, LayerNorm before each part, an MLP without a gate.

GPT-2 keeps one matrix for q, k and v, and all matrices as [in, out]; OPT's table of positions begins with
rows that nobody uses. These are facts of the ModelSpec.
"""

from __future__ import annotations

import torch

from engine.models.checkpoint import Checkpoint
from engine.models.mlp import PlainMLP
from engine.models.norms import adapted_norm, layer_norm
from engine.models.projection import Projection
from engine.models.self_attention import SelfAttention
from engine.models.stack import PositionedEmbedding, PreNormLayer, StackedDecoder, make_head
from engine.modelspec import ModelSpec


def build(spec: ModelSpec, weights: Checkpoint, dtype: torch.dtype) -> StackedDecoder:
    """Raises BadWeights."""
    size = spec.hidden_size
    embedding = weights.take(f"{spec.names.embedding}.weight", (spec.vocab_size, size))
    places = weights.take(f"{spec.names.places}.weight", (spec.place_rows, size))
    return StackedDecoder(
        embed=PositionedEmbedding(embedding, places, spec.first_place),
        rotations=None,
        layers=[_layer(spec, layer, weights) for layer in range(spec.num_layers)],
        norm=adapted_norm(weights, spec, spec.names.final_norm, layer_norm),
        head=make_head(spec, weights, embedding),
    )


def _layer(spec: ModelSpec, layer: int, weights: Checkpoint) -> PreNormLayer:
    def part(group: str, bias: bool) -> Projection:
        return Projection(spec, layer, weights, group, bias, spec.transposed)

    prefix = f"{spec.layers_at}.{layer}"
    return PreNormLayer(
        before_attention=adapted_norm(weights, spec, f"{prefix}.{spec.names.before_attention}", layer_norm),
        attention=SelfAttention(spec, layer, part("qkv", spec.qkv_bias), part("o", spec.o_bias), None),
        before_mlp=adapted_norm(weights, spec, f"{prefix}.{spec.names.before_mlp}", layer_norm),
        mlp=PlainMLP(spec.activation, part("up", spec.mlp_bias), part("down", spec.mlp_bias)),
    )
