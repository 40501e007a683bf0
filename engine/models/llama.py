"""The Llama family: RMSNorm, rotary attention with grouped heads, gated MLP.

Mistral adds a sliding window, Qwen2 a bias on q, k and v, Qwen3 a norm on each head of q and k; all
three are facts of the ModelSpec. q, k, v and gate, up are stored fused: fewer, larger products.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.attention.base import AttentionBackend
from engine.lora import LoraBatch
from engine.models.base import ForwardBatch
from engine.models.checkpoint import Checkpoint
from engine.models.linear import Linear, make_linear
from engine.models.rope import Rope, rotate
from engine.modelspec import ModelSpec


class RMSNorm:
    """x / rms(x) * weight over the last dimension, the mean taken in float32."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self._eps)
        return self._weight * wide.to(x.dtype)


class Attention:
    """One layer's attention: fused projection, head norms where the family has them, rotation, cache."""

    def __init__(self, spec: ModelSpec, layer: int, weights: Checkpoint) -> None:
        self._layer = layer
        self._heads = (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
        self._head_dim = spec.head_dim
        prefix = f"model.layers.{layer}.self_attn"
        self._qkv = _fused(spec, weights, prefix, ("q_proj", "k_proj", "v_proj"), spec.qkv_bias)
        self._out = _fused(spec, weights, prefix, ("o_proj",), spec.o_bias)
        self._q_norm, self._k_norm = (
            RMSNorm(weights.take(f"{prefix}.{name}.weight", (spec.head_dim,)), spec.rms_norm_eps)
            if spec.qk_norm
            else None
            for name in ("q_norm", "k_norm")
        )

    def __call__(
        self, x: Tensor, angles: tuple[Tensor, Tensor], batch: ForwardBatch, attention: AttentionBackend
    ) -> Tensor:
        fused = _apply(self._qkv, x, batch.lora, self._layer, "qkv")
        widths = [heads * self._head_dim for heads in self._heads]
        q, k, v = (part.view(len(x), -1, self._head_dim) for part in torch.split(fused, widths, dim=-1))
        if self._q_norm is not None and self._k_norm is not None:
            q, k = self._q_norm(q), self._k_norm(k)
        q, k = rotate(q, *angles), rotate(k, *angles)
        seen = attention.attend(self._layer, q, k, v, batch.attention)
        return _apply(self._out, seen.flatten(1), batch.lora, self._layer, "o")


class MLP:
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, spec: ModelSpec, layer: int, weights: Checkpoint) -> None:
        self._layer = layer
        prefix = f"model.layers.{layer}.mlp"
        self._gate_up = _fused(spec, weights, prefix, ("gate_proj", "up_proj"), spec.mlp_bias)
        self._down = _fused(spec, weights, prefix, ("down_proj",), spec.mlp_bias)

    def __call__(self, x: Tensor, lora: LoraBatch | None) -> Tensor:
        gate, up = _apply(self._gate_up, x, lora, self._layer, "gate_up").chunk(2, dim=-1)
        return _apply(self._down, F.silu(gate) * up, lora, self._layer, "down")


class DecoderLayer:
    """Attention and MLP, each behind its norm and around a residual."""

    def __init__(self, spec: ModelSpec, layer: int, weights: Checkpoint) -> None:
        prefix, size = f"model.layers.{layer}", (spec.hidden_size,)
        self._before_attention = RMSNorm(
            weights.take(f"{prefix}.input_layernorm.weight", size), spec.rms_norm_eps
        )
        self._before_mlp = RMSNorm(
            weights.take(f"{prefix}.post_attention_layernorm.weight", size), spec.rms_norm_eps
        )
        self._attention = Attention(spec, layer, weights)
        self._mlp = MLP(spec, layer, weights)

    def __call__(
        self, x: Tensor, angles: tuple[Tensor, Tensor], batch: ForwardBatch, attention: AttentionBackend
    ) -> Tensor:
        x = x + self._attention(self._before_attention(x), angles, batch, attention)
        return x + self._mlp(self._before_mlp(x), batch.lora)


class LlamaDecoder:
    """Embedding, layers, final norm, head."""

    def __init__(self, spec: ModelSpec, weights: Checkpoint, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._rope = Rope(spec.rope, spec.head_dim)
        vocab = (spec.vocab_size, spec.hidden_size)
        self._embedding = weights.take("model.embed_tokens.weight", vocab)
        self._layers = [DecoderLayer(spec, layer, weights) for layer in range(spec.num_layers)]
        self._norm = RMSNorm(weights.take("model.norm.weight", (spec.hidden_size,)), spec.rms_norm_eps)
        if spec.tie_embeddings:
            weights.ignore("lm_head.weight")
            self._head = make_linear(self._embedding)
        else:
            self._head = make_linear(weights.take("lm_head.weight", vocab))

    def forward(self, batch: ForwardBatch, attention: AttentionBackend) -> Tensor:
        """See models.base.Decoder."""
        x = F.embedding(batch.token_ids, self._embedding)
        angles = self._rope.angles(batch.positions, self._dtype)
        for layer in self._layers:
            x = layer(x, angles, batch, attention)
        return self._head(self._norm(x[batch.rows])).to(torch.float32)


def load(folder: Path, spec: ModelSpec, dtype: torch.dtype) -> LlamaDecoder:
    """Build the decoder of `spec` from the safetensors in `folder`. Raises BadWeights."""
    with Checkpoint(folder, dtype) as weights:
        decoder = LlamaDecoder(spec, weights, dtype)
        weights.expect_empty()
    return decoder


def _fused(spec: ModelSpec, weights: Checkpoint, prefix: str, names: tuple[str, ...], bias: bool) -> Linear:
    """The modules `names` of one layer as one product whose output is theirs side by side."""
    part = prefix.rsplit(".", 1)[-1]
    shapes = spec.module_shapes()
    matrices = [weights.take(f"{prefix}.{name}.weight", shapes[f"{part}.{name}"]) for name in names]
    biases = [weights.take(f"{prefix}.{name}.bias", shapes[f"{part}.{name}"][:1]) for name in names if bias]
    return make_linear(_join(matrices), _join(biases) if bias else None)


def _join(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)


def _apply(linear: Linear, x: Tensor, lora: LoraBatch | None, layer: int, group: str) -> Tensor:
    y = linear(x)
    if lora is not None:
        lora.add_delta(layer, group, x, y)
    return y
