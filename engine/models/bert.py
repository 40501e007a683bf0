"""BERT-like encoders (MiniLM, BGE, E5): learned positions, LayerNorm after each part, GELU.

An encoder has no cache, no head and no adapters, so it has a description of its own, no ModelSpec.
"""

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
from engine.errors import UnsupportedModel
from engine.models.checkpoint import Checkpoint
from engine.models.linear import Linear, make_linear
from engine.models.mlp import ACTIVATIONS
from engine.models.norms import Norm, layer_norm
from engine.modelspec import read_json

_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
_ONLY: dict[str, tuple[object, ...]] = {
    "hidden_act": tuple(_ACTIVATIONS),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "quantization_config": (None,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """Immutable description of one encoder."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    vocab_size: int
    max_position: int
    token_types: int
    eps: float
    activation: str


def read_encoder_spec(folder: Path) -> EncoderSpec:
    """Read `folder`/config.json. Raises UnsupportedModel naming the key, the value met and those allowed."""
    config = read_json(folder / "config.json")
    required = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    if missing := [key for key in required if config.get(key) is None]:
        raise UnsupportedModel(f"config.json lacks {', '.join(missing)}")
    for key, allowed in _ONLY.items():
        if (met := config.get(key, allowed[0])) not in allowed:
            shown = ", ".join(str(value) for value in allowed)
            raise UnsupportedModel(f"{key} {met} is not supported; supported: {shown}")
    return EncoderSpec(
        hidden_size=int(config["hidden_size"]),
        intermediate_size=int(config["intermediate_size"]),
        num_layers=int(config["num_hidden_layers"]),
        num_heads=int(config["num_attention_heads"]),
        vocab_size=int(config["vocab_size"]),
        max_position=int(config.get("max_position_embeddings", 512)),
        token_types=int(config.get("type_vocab_size", 2)),
        eps=float(config.get("layer_norm_eps", 1e-12)),
        activation=_ACTIVATIONS[config.get("hidden_act", "gelu")],
    )


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    """Attention and MLP, each with a residual and a norm behind it."""

    heads: int
    qkv: Linear
    out: Linear
    after_attention: Norm
    activation: Callable[[Tensor], Tensor]
    up: Linear
    down: Linear
    after_mlp: Norm

    def __call__(self, x: Tensor, layer: int, attention: DirectAttention, plan: AttentionPlan) -> Tensor:
        q, k, v = self.qkv(x).view(len(x), 3, self.heads, -1).unbind(1)
        x = self.after_attention(x + self.out(attention.attend(layer, q, k, v, plan).flatten(1)))
        return self.after_mlp(x + self.down(self.activation(self.up(x))))


class BertEncoder:
    """Embeddings and layers, with their weights."""

    def __init__(self, spec: EncoderSpec, weights: Checkpoint) -> None:
        """Raises BadWeights."""
        size, at = spec.hidden_size, "bert.embeddings"
        self._words = weights.take(f"{at}.word_embeddings.weight", (spec.vocab_size, size))
        self._places = weights.take(f"{at}.position_embeddings.weight", (spec.max_position, size))
        # Texts are of one part: the first of the token types is theirs.
        self._type = weights.take(f"{at}.token_type_embeddings.weight", (spec.token_types, size))[0]
        self._norm = layer_norm(weights, f"{at}.LayerNorm", size, spec.eps)
        self._layers = [_layer(spec, f"bert.encoder.layer.{i}", weights) for i in range(spec.num_layers)]
        self.attention = DirectAttention((None,) * spec.num_layers, Scores(), causal=False)

    def forward(self, token_ids: Tensor, positions: Tensor, plan: AttentionPlan) -> Tensor:
        """token_ids, positions [T] int64; plan of `attention` -> hidden states [T, hidden]."""
        x = F.embedding(token_ids, self._words) + self._type + F.embedding(positions, self._places)
        x = self._norm(x)
        for number, layer in enumerate(self._layers):
            x = layer(x, number, self.attention, plan)
        return x


def load_encoder(folder: Path, spec: EncoderSpec, dtype: torch.dtype) -> BertEncoder:
    """Read the weights of `folder`. Raises BadWeights."""
    with Checkpoint(folder, dtype, root="bert") as weights:
        encoder = BertEncoder(spec, weights)
        weights.ignore("bert.pooler.dense.weight", "bert.pooler.dense.bias")
        weights.expect_empty()
    return encoder


def _layer(spec: EncoderSpec, at: str, weights: Checkpoint) -> EncoderLayer:
    size, inner = spec.hidden_size, spec.intermediate_size

    def dense(out: int, width: int, *names: str) -> Linear:
        matrices = [weights.take(f"{at}.{name}.weight", (out, width)) for name in names]
        biases = [weights.take(f"{at}.{name}.bias", (out,)) for name in names]
        return make_linear(torch.cat(matrices), torch.cat(biases))

    own = "attention.self"
    return EncoderLayer(
        heads=spec.num_heads,
        qkv=dense(size, size, f"{own}.query", f"{own}.key", f"{own}.value"),
        out=dense(size, size, "attention.output.dense"),
        after_attention=layer_norm(weights, f"{at}.attention.output.LayerNorm", size, spec.eps),
        activation=ACTIVATIONS[spec.activation],
        up=dense(inner, size, "intermediate.dense"),
        down=dense(size, inner, "output.dense"),
        after_mlp=layer_norm(weights, f"{at}.output.LayerNorm", size, spec.eps),
    )
