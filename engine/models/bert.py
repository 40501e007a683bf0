"""BERT-like encoders (MiniLM, BGE, E5): learned positions, LayerNorm after each part, GELU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.attention.base import AttentionPlan
from engine.attention.direct import DirectAttention
from engine.attention.scores import Scores
from engine.encoderspec import ATTENTION_IN, ATTENTION_OUT, DOWN, FIRST_NORM, NORMS, ROOT, UP, EncoderSpec
from engine.models.adapter_batch import AdapterBatch
from engine.models.checkpoint import Checkpoint
from engine.models.linear import make_linear
from engine.models.mlp import ACTIVATIONS
from engine.models.module_groups import ModuleGroup
from engine.models.norms import AdaptedNorm, layer_norm
from engine.models.projection import AdaptedLinear


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    """Attention and MLP, each with a residual and a norm behind it."""

    heads: int
    qkv: AdaptedLinear
    out: AdaptedLinear
    after_attention: AdaptedNorm
    activation: Callable[[Tensor], Tensor]
    up: AdaptedLinear
    down: AdaptedLinear
    after_mlp: AdaptedNorm

    def __call__(
        self,
        x: Tensor,
        layer: int,
        attention: DirectAttention,
        plan: AttentionPlan,
        adapters: AdapterBatch | None,
    ) -> Tensor:
        q, k, v = self.qkv(x, adapters).view(len(x), 3, self.heads, -1).unbind(1)
        seen = attention.attend(layer, q, k, v, plan).flatten(1)
        x = self.after_attention(x + self.out(seen, adapters), adapters)
        return self.after_mlp(x + self.down(self.activation(self.up(x, adapters)), adapters), adapters)


class BertEncoder:
    """Embeddings and layers, with their weights."""

    def __init__(self, spec: EncoderSpec, weights: Checkpoint) -> None:
        """Raises BadWeights."""
        size, at = spec.hidden_size, f"{ROOT}.embeddings"
        self._words = weights.take(f"{at}.word_embeddings.weight", (spec.vocab_size, size))
        self._places = weights.take(f"{at}.position_embeddings.weight", (spec.max_position, size))
        # Texts are of one part: the first of the token types is theirs.
        self._type = weights.take(f"{at}.token_type_embeddings.weight", (spec.token_types, size))[0]
        self._norm = AdaptedNorm(FIRST_NORM, layer_norm(weights, FIRST_NORM, size, spec.eps))
        self._layers = [_layer(spec, layer, weights) for layer in range(spec.num_layers)]
        self.attention = DirectAttention((None,) * spec.num_layers, Scores(), causal=False)

    def forward(
        self, token_ids: Tensor, positions: Tensor, plan: AttentionPlan, adapters: AdapterBatch | None
    ) -> Tensor:
        """token_ids, positions [T] int64; plan of `attention` -> hidden states [T, hidden]."""
        words = F.embedding(token_ids, self._words)
        if adapters is not None:
            adapters.embed(token_ids, words)
        x = self._norm(words + self._type + F.embedding(positions, self._places), adapters)
        for number, layer in enumerate(self._layers):
            x = layer(x, number, self.attention, plan, adapters)
        return x


def load_encoder(folder: Path, spec: EncoderSpec, dtype: torch.dtype) -> BertEncoder:
    """Read the weights of `folder`. Raises BadWeights."""
    with Checkpoint(folder, dtype, root=ROOT) as weights:
        encoder = BertEncoder(spec, weights)
        weights.ignore(f"{ROOT}.pooler.dense.weight", f"{ROOT}.pooler.dense.bias")
        weights.expect_empty()
    return encoder


def encoder_groups(spec: EncoderSpec) -> list[ModuleGroup]:
    """The linear modules of every layer that read the same input."""
    return [group for layer in range(spec.num_layers) for group in _groups(spec, layer)]


def _groups(spec: EncoderSpec, layer: int) -> tuple[ModuleGroup, ModuleGroup, ModuleGroup, ModuleGroup]:
    """Of one layer: into attention and out of it, up and down."""
    shapes, at = spec.linear_modules, spec.layer_at(layer)

    def group(*modules: str) -> ModuleGroup:
        names = tuple(f"{at}.{module}" for module in modules)
        return ModuleGroup(names, tuple(shapes[name][0] for name in names))

    return group(*ATTENTION_IN), group(ATTENTION_OUT), group(UP), group(DOWN)


def _layer(spec: EncoderSpec, layer: int, weights: Checkpoint) -> EncoderLayer:
    shapes, at = spec.linear_modules, spec.layer_at(layer)

    def dense(group: ModuleGroup) -> AdaptedLinear:
        matrices = [weights.take(f"{name}.weight", shapes[name]) for name in group.names]
        biases = [weights.take(f"{name}.bias", shapes[name][:1]) for name in group.names]
        return AdaptedLinear(group, make_linear(torch.cat(matrices), torch.cat(biases)))

    def norm(name: str) -> AdaptedNorm:
        return AdaptedNorm(name, layer_norm(weights, name, spec.hidden_size, spec.eps))

    qkv, out, up, down = map(dense, _groups(spec, layer))
    return EncoderLayer(
        heads=spec.num_heads,
        qkv=qkv,
        out=out,
        after_attention=norm(f"{at}.{NORMS[0]}"),
        activation=ACTIVATIONS[spec.activation],
        up=up,
        down=down,
        after_mlp=norm(f"{at}.{NORMS[1]}"),
    )
