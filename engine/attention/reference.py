"""Reference attention: torch's own operations over the paged cache.

Sequences with one new token are batched: their blocks are gathered side by side and padded, in groups
of similar length so that a short sequence is not padded to a long one. Sequences with several new
tokens are attended one by one. Nothing but a sequence's own positions is ever read, not even where it
is masked: a value that is not finite, left by another sequence, would come through the mask as NaN.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.base import PagedAttention, SeqSpan
from engine.attention.scores import Scores
from engine.config import BLOCK_SIZE, blocks_for
from engine.modelspec import ModelSpec


@dataclass(frozen=True, slots=True)
class PrefillSpan:
    """Several new tokens of one sequence.

    rows: where they lie in the batch. slots: int64 [n], the cache places of what they may see.
    mask: bool [count, n], or None where they are the sequence's first tokens and see only each other.
    """

    rows: slice
    slots: Tensor
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """One new token each of several sequences of similar length.

    rows: int64 [B]. slots: int64 [B * n], padded with a place of the same sequence.
    mask: bool [B, 1, 1, n], False at the padding.
    """

    rows: Tensor
    slots: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The work of the layers that share one window."""

    prefills: tuple[PrefillSpan, ...]
    decodes: tuple[DecodeGroup, ...]


@dataclass(frozen=True, slots=True)
class ReferencePlan:
    """slots: int64 [T], the cache place of each new token: block * BLOCK_SIZE + offset."""

    slots: Tensor
    windows: dict[int | None, WindowPlan]


class ReferenceAttention(PagedAttention):
    """Cache: keys and values of each layer, [blocks * BLOCK_SIZE, kv_heads, head_dim]."""

    def __init__(self, spec: ModelSpec, num_blocks: int, dtype: torch.dtype) -> None:
        shape = (num_blocks * BLOCK_SIZE, spec.num_kv_heads, spec.head_dim)
        self._windows = spec.windows
        self._scores = Scores.of(spec)
        self._keys = [torch.empty(shape, dtype=dtype) for _ in range(spec.num_layers)]
        self._values = [torch.empty(shape, dtype=dtype) for _ in range(spec.num_layers)]

    def copy_block(self, source: int, target: int) -> None:
        """See PagedAttention."""
        for cache in (*self._keys, *self._values):
            blocks = cache.view(-1, BLOCK_SIZE, *cache.shape[1:])
            blocks[target] = blocks[source]

    def plan(self, spans: Sequence[SeqSpan]) -> ReferencePlan:
        """See AttentionBackend."""
        slots = torch.cat([_slots(span.block_table, span.start, span.start + span.count) for span in spans])
        windows = {window: _plan_window(spans, window) for window in set(self._windows)}
        return ReferencePlan(slots, windows)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: ReferencePlan) -> Tensor:
        """See AttentionBackend."""
        keys, values = self._keys[layer], self._values[layer]
        keys.index_copy_(0, plan.slots, k)
        values.index_copy_(0, plan.slots, v)
        work = plan.windows[self._windows[layer]]
        out = torch.empty_like(q)
        for span in work.prefills:
            if span.mask is None:
                out[span.rows] = self._scores.causal(q[span.rows], k[span.rows], v[span.rows])
            else:
                seen_k, seen_v = (cache.index_select(0, span.slots) for cache in (keys, values))
                out[span.rows] = self._scores.masked(q[span.rows], seen_k, seen_v, span.mask)
        for group in work.decodes:
            out[group.rows] = _attend_one(q[group.rows], keys, values, group, self._scores)
        return out


def create(spec: ModelSpec, num_blocks: int, dtype: torch.dtype) -> ReferenceAttention:
    """Factory row of engine.attention."""
    return ReferenceAttention(spec, num_blocks, dtype)


def _attend_one(q: Tensor, keys: Tensor, values: Tensor, group: DecodeGroup, scores: Scores) -> Tensor:
    """q [B, heads, head_dim]; the heads that share a key stand where its queries' positions would."""
    batch, heads, head_dim = q.shape
    kv_heads = keys.shape[1]
    k, v = (
        cache.index_select(0, group.slots).view(batch, -1, kv_heads, head_dim).transpose(1, 2)
        for cache in (keys, values)
    )
    grouped = q.view(batch, kv_heads, heads // kv_heads, head_dim)
    return scores.attend(grouped, k, v, group.mask).reshape(q.shape)


def _slots(block_table: Sequence[int], start: int, end: int) -> Tensor:
    """Cache places of the positions start .. end - 1; int64."""
    first = start // BLOCK_SIZE
    blocks = torch.tensor(block_table[first : blocks_for(end)])
    places = (blocks[:, None] * BLOCK_SIZE + torch.arange(BLOCK_SIZE)).flatten()
    return places[start - first * BLOCK_SIZE : end - first * BLOCK_SIZE]


def _lowest(position: int, window: int | None) -> int:
    """The first position that the token at `position` sees."""
    return 0 if window is None else max(0, position - window + 1)


def _plan_window(spans: Sequence[SeqSpan], window: int | None) -> WindowPlan:
    prefills: list[PrefillSpan] = []
    by_size: dict[int, list[tuple[int, SeqSpan]]] = defaultdict(list)
    row = 0
    for span in spans:
        if span.count > 1:
            prefills.append(_prefill(span, row, window))
        else:
            seen = span.start + 1 - _lowest(span.start, window)
            by_size[seen.bit_length()].append((row, span))
        row += span.count
    decodes = tuple(_decode_group(members, window) for members in by_size.values())
    return WindowPlan(tuple(prefills), decodes)


def _prefill(span: SeqSpan, row: int, window: int | None) -> PrefillSpan:
    rows = slice(row, row + span.count)
    end = span.start + span.count
    low = _lowest(span.start, window)
    slots = _slots(span.block_table, low, end)
    if span.start == 0 and (window is None or window >= end):
        return PrefillSpan(rows, slots, None)
    asking = torch.arange(span.start, end)[:, None]
    asked = torch.arange(low, end)[None, :]
    mask = asked <= asking
    if window is not None:
        mask &= asked > asking - window
    return PrefillSpan(rows, slots, mask)


def _decode_group(members: list[tuple[int, SeqSpan]], window: int | None) -> DecodeGroup:
    places = [_slots(span.block_table, _lowest(span.start, window), span.start + 1) for _, span in members]
    lengths = torch.tensor([len(own) for own in places])
    slots = torch.nn.utils.rnn.pad_sequence(places, batch_first=True, padding_value=-1)
    mask = torch.arange(slots.shape[1])[None, :] < lengths[:, None]
    slots = torch.where(mask, slots, slots[:, :1])
    rows = torch.tensor([row for row, _ in members])
    return DecodeGroup(rows, slots.flatten(), mask[:, None, None, :])
