"""What a decoder takes and gives. Knows no architecture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from engine.attention.base import AttentionBackend, AttentionPlan
from engine.models.adapter_batch import AdapterBatch


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """Tokens of all sequences of a step, one after another.

    token_ids, positions: int64 [T]. rows: int64 [S], the tokens whose logits are wanted.
    attention: how these tokens see the cache. adapters: of all tokens, and of those in rows; None when no
    token has one.
    """

    token_ids: Tensor
    positions: Tensor
    rows: Tensor
    attention: AttentionPlan
    adapters: AdapterBatch | None = None
    adapters_at_rows: AdapterBatch | None = None


class Decoder(Protocol):
    """A decoder-only model with its weights."""

    def hidden(self, batch: ForwardBatch, attention: AttentionBackend) -> Tensor:
        """Write the batch's keys and values to the cache; [S, hidden] behind the last norm."""

    def logits(self, hidden: Tensor, adapters: AdapterBatch | None) -> Tensor:
        """Of rows of `hidden`, with the adapters of just these: float32 [rows, vocab]."""
