"""The interface of attention backends: who stores keys and values, and how a batch attends to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor

AttentionPlan: TypeAlias = Any
"""What `plan` made and `attend` of the same backend reads; opaque to everybody else."""


@dataclass(frozen=True, slots=True)
class SeqSpan:
    """New tokens of one sequence: positions start .. start + count - 1, cached in `block_table`.

    block_table: rows of one block of each KV group, as in ScheduledSeq.
    """

    start: int
    count: int
    block_table: Sequence[int]


class AttentionBackend(ABC):
    """How the tokens of a batch attend; holds what it needs of their past, if anything."""

    @abstractmethod
    def plan(self, spans: Sequence[SeqSpan]) -> AttentionPlan:
        """Index work of one step, done once and shared by its layers."""

    @abstractmethod
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan) -> Tensor:
        """Store k, v [T, kv_heads, head_dim], then attend q [T, heads, head_dim] to all its sequence's
        positions up to its own, within the layer's window; returns [T, heads, head_dim]."""


class PagedAttention(AttentionBackend):
    """Owns the paged cache of all layers and its layout."""

    @abstractmethod
    def copy_block(self, source: int, target: int) -> None:
        """Copy keys and values of a whole block in every layer of its group."""
