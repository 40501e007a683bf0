"""A model folder into packed weights, tensor by tensor; each is freed before the next one is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from engine.models.checkpoint import Checkpoint
from engine.modelspec import ModelSpec
from engine.native.library import Part

Put = Callable[[int, Part, Tensor], None]
"""Takes a layer (-1: none), a part and its contiguous tensor; copies it."""

MODULES = {
    "self_attn.q_proj": Part.Q,
    "self_attn.k_proj": Part.K,
    "self_attn.v_proj": Part.V,
    "self_attn.o_proj": Part.O,
    "mlp.gate_proj": Part.GATE,
    "mlp.up_proj": Part.UP,
    "mlp.down_proj": Part.DOWN,
}
"""Linear modules of a layer by their name within it."""


def load_weights(folder: Path, spec: ModelSpec, dtype: torch.dtype, put: Put, put_bias: Put) -> None:
    """Hand every tensor of the Llama family to `put` or `put_bias`. Raises BadWeights."""
    with Checkpoint(folder, dtype) as weights:
        vocab, hidden = (spec.vocab_size, spec.hidden_size), (spec.hidden_size,)
        embedding = weights.take("model.embed_tokens.weight", vocab)
        put(-1, Part.HEAD if spec.tie_embeddings else Part.EMBEDDING, embedding)
        del embedding
        for layer in range(spec.num_layers):
            _load_layer(weights, spec, layer, put, put_bias)
        put(-1, Part.NORM_FINAL, weights.take("model.norm.weight", hidden))
        if spec.tie_embeddings:
            weights.ignore("lm_head.weight")
        else:
            put(-1, Part.HEAD, weights.take("lm_head.weight", vocab))
        weights.expect_empty()


def _load_layer(weights: Checkpoint, spec: ModelSpec, layer: int, put: Put, put_bias: Put) -> None:
    prefix, hidden = f"model.layers.{layer}", (spec.hidden_size,)
    put(layer, Part.NORM_ATTENTION, weights.take(f"{prefix}.input_layernorm.weight", hidden))
    put(layer, Part.NORM_MLP, weights.take(f"{prefix}.post_attention_layernorm.weight", hidden))
    for name, shape in spec.module_shapes().items():
        part = MODULES[name]
        put(layer, part, weights.take(f"{prefix}.{name}.weight", shape))
        if _has_bias(spec, part):
            put_bias(layer, part, weights.take(f"{prefix}.{name}.bias", shape[:1]))
    if spec.qk_norm:
        size = (spec.head_dim,)
        put(layer, Part.NORM_Q, weights.take(f"{prefix}.self_attn.q_norm.weight", size))
        put(layer, Part.NORM_K, weights.take(f"{prefix}.self_attn.k_norm.weight", size))


def _has_bias(spec: ModelSpec, part: Part) -> bool:
    if part in (Part.Q, Part.K, Part.V):
        return spec.qkv_bias
    return spec.o_bias if part is Part.O else spec.mlp_bias
