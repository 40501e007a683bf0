"""A decoder as a stack: embedding, layers, final norm, head. Families differ in the parts they put in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.attention.base import AttentionBackend
from engine.models.adapter_batch import AdapterBatch
from engine.models.base import ForwardBatch
from engine.models.checkpoint import Checkpoint
from engine.models.linear import Linear, make_linear
from engine.models.mlp import MLP
from engine.models.norms import AdaptedNorm
from engine.models.rope import Angles, Rope
from engine.models.self_attention import SelfAttention
from engine.modelspec import ModelSpec


class Layer(Protocol):
    """x [T, hidden] -> [T, hidden]."""

    def __call__(
        self, x: Tensor, angles: Angles | None, batch: ForwardBatch, attention: AttentionBackend
    ) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class PreNormLayer:
    """Attention and MLP, each behind its norm and around a residual."""

    before_attention: AdaptedNorm
    attention: SelfAttention
    before_mlp: AdaptedNorm
    mlp: MLP

    def __call__(
        self, x: Tensor, angles: Angles | None, batch: ForwardBatch, attention: AttentionBackend
    ) -> Tensor:
        x = x + self.attention(self.before_attention(x, batch.adapters), angles, batch, attention)
        return x + self.mlp(self.before_mlp(x, batch.adapters), batch.adapters)


class Rotations:
    """Angles of each layer, computed once a step for each of the model's rotations."""

    def __init__(self, spec: ModelSpec, dtype: torch.dtype) -> None:
        ropes = [spec.rope] if spec.local_rope is None else [spec.rope, spec.local_rope]
        self._ropes = [Rope(rope, spec.head_dim) for rope in ropes]
        self._which = [len(ropes) - 1 if window else 0 for window in spec.windows]
        self._dtype = dtype

    def __call__(self, positions: Tensor) -> Sequence[Angles]:
        made = [rope.angles(positions, self._dtype) for rope in self._ropes]
        return [made[which] for which in self._which]


@dataclass(frozen=True, slots=True)
class Head:
    """Logits in float32, bounded by the soft cap where the family has one."""

    linear: Linear
    softcap: float | None

    def __call__(self, x: Tensor, adapters: AdapterBatch | None) -> Tensor:
        logits = self.linear(x)
        if adapters is not None:
            adapters.head(x, logits)
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits.to(torch.float32)


@dataclass(frozen=True, slots=True)
class StackedDecoder:
    """See models.base.Decoder. embed: the batch's tokens, [T, hidden]. rotations: None where learned."""

    embed: Callable[[ForwardBatch], Tensor]
    rotations: Rotations | None
    layers: Sequence[Layer]
    norm: AdaptedNorm
    head: Head

    def hidden(self, batch: ForwardBatch, attention: AttentionBackend) -> Tensor:
        """See Decoder."""
        x = self.embed(batch)
        angles = [None] * len(self.layers) if self.rotations is None else self.rotations(batch.positions)
        for layer, own in zip(self.layers, angles, strict=True):
            x = layer(x, own, batch, attention)
        return self.norm(x[batch.rows], batch.adapters_at_rows)

    def logits(self, hidden: Tensor, adapters: AdapterBatch | None) -> Tensor:
        """See Decoder."""
        return self.head(hidden, adapters)


@dataclass(frozen=True, slots=True)
class TokenEmbedding:
    """Rows of a table, times a scale rounded to the model's dtype."""

    table: Tensor
    scale: float = 1.0

    def __call__(self, batch: ForwardBatch) -> Tensor:
        rows = embedded(batch, self.table)
        return rows if self.scale == 1.0 else rows * torch.tensor(self.scale, dtype=rows.dtype)


@dataclass(frozen=True, slots=True)
class PositionedEmbedding:
    """Rows of a table of tokens plus rows of a table of positions, whose first `offset` rows are unused."""

    table: Tensor
    positions: Tensor
    offset: int = 0

    def __call__(self, batch: ForwardBatch) -> Tensor:
        places = F.embedding(batch.positions + self.offset, self.positions)
        return embedded(batch, self.table) + places


def embedded(batch: ForwardBatch, table: Tensor) -> Tensor:
    """Rows of the table of tokens, or what adapters have in their place."""
    rows = F.embedding(batch.token_ids, table)
    if batch.adapters is not None:
        batch.adapters.embed(batch.token_ids, rows)
    return rows


def make_head(spec: ModelSpec, weights: Checkpoint, embedding: Tensor) -> Head:
    """The head of `lm_head.weight`, or of the embedding where the two are tied."""
    if spec.tie_embeddings:
        weights.ignore("lm_head.weight")
        return Head(make_linear(embedding), spec.logit_softcap)
    matrix = weights.take("lm_head.weight", (spec.vocab_size, spec.hidden_size))
    return Head(make_linear(matrix), spec.logit_softcap)
