"""What a decoder takes and gives. Knows no architecture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from engine.attention.base import AttentionBackend, AttentionPlan
from engine.lora import LoraBatch


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """Tokens of all sequences of a step, one after another.

    token_ids, positions: int64 [T]. rows: int64 [S], the tokens whose logits are wanted.
    attention: how these tokens see the cache. lora: None when no token has an adapter.
    """

    token_ids: Tensor
    positions: Tensor
    rows: Tensor
    attention: AttentionPlan
    lora: LoraBatch | None


class Decoder(Protocol):
    """A decoder-only model with its weights."""

    def forward(self, batch: ForwardBatch, attention: AttentionBackend) -> Tensor:
        """Write the batch's keys and values to the cache; logits float32 [S, vocab]."""

    def hidden(self, batch: ForwardBatch, attention: AttentionBackend) -> Tensor:
        """The same as far as the head: [S, hidden] behind the last norm."""
