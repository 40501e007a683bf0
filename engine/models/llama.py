"""The Llama family: RMSNorm, rotary attention with grouped heads, gated MLP.

Mistral adds a sliding window, Qwen2 a bias on q, k and v, Qwen3 a norm on each head of q and k, Phi-3
fused checkpoints and a rotation of part of each head; all are facts of the ModelSpec.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from engine.models.checkpoint import Checkpoint
from engine.models.mlp import MLP, GatedMLP
from engine.models.norms import LoadNorm, adapted_norm, rms_norm
from engine.models.projection import Projection
from engine.models.self_attention import SelfAttention
from engine.models.stack import PreNormLayer, Rotations, StackedDecoder, TokenEmbedding, make_head
from engine.modelspec import ModelSpec

MakeMLP = Callable[[ModelSpec, int, Checkpoint], MLP]


def build(spec: ModelSpec, weights: Checkpoint, dtype: torch.dtype) -> StackedDecoder:
    """Raises BadWeights."""
    return build_with(spec, weights, dtype, gated_mlp)


def build_with(spec: ModelSpec, weights: Checkpoint, dtype: torch.dtype, make_mlp: MakeMLP) -> StackedDecoder:
    """The family's decoder with another MLP."""
    embedding = weights.take(f"{spec.names.embedding}.weight", (spec.vocab_size, spec.hidden_size))
    return StackedDecoder(
        embed=TokenEmbedding(embedding),
        rotations=Rotations(spec, dtype),
        layers=[_layer(spec, layer, weights, make_mlp) for layer in range(spec.num_layers)],
        norm=adapted_norm(weights, spec, spec.names.final_norm, rms_norm),
        head=make_head(spec, weights, embedding),
    )


def rotary_attention(spec: ModelSpec, layer: int, weights: Checkpoint, load_norm: LoadNorm) -> SelfAttention:
    """Attention of layer `layer`; `load_norm` makes its head norms, where it has them."""
    norms = None
    if spec.qk_norm:
        at = f"{spec.layers_at}.{layer}.self_attn"
        norms = (
            load_norm(weights, f"{at}.q_norm", spec.head_dim, spec.rms_norm_eps),
            load_norm(weights, f"{at}.k_norm", spec.head_dim, spec.rms_norm_eps),
        )
    qkv = Projection(spec, layer, weights, "qkv", spec.qkv_bias)
    return SelfAttention(spec, layer, qkv, Projection(spec, layer, weights, "o", spec.o_bias), norms)


def gated_mlp(spec: ModelSpec, layer: int, weights: Checkpoint) -> GatedMLP:
    """The dense MLP of layer `layer`."""
    gate_up = Projection(spec, layer, weights, "gate_up", spec.mlp_bias)
    return GatedMLP(spec.activation, gate_up, Projection(spec, layer, weights, "down", spec.mlp_bias))


def _layer(spec: ModelSpec, layer: int, weights: Checkpoint, make_mlp: MakeMLP) -> PreNormLayer:
    prefix = f"{spec.layers_at}.{layer}"
    return PreNormLayer(
        before_attention=adapted_norm(weights, spec, f"{prefix}.{spec.names.before_attention}", rms_norm),
        attention=rotary_attention(spec, layer, weights, rms_norm),
        before_mlp=adapted_norm(weights, spec, f"{prefix}.{spec.names.before_mlp}", rms_norm),
        mlp=make_mlp(spec, layer, weights),
    )
