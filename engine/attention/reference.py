"""Reference attention: torch's own operations over the paged cache.

Sequences with one new token are batched: their blocks are gathered side by side and padded, in groups
of similar length so that a short sequence is not padded to a long one. Sequences with several new
tokens are attended one by one. Nothing but a sequence's own positions is ever read, not even where it
is masked: a value that is not finite, left by another sequence, would come through the mask as NaN.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.attention.base import PagedAttention, SeqSpan
from engine.attention.scores import Scores
from engine.config import BLOCK_SIZE, blocks_for
from engine.kv_groups import Window
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
class GroupPlan:
    """The work of the layers of one KV group.

    slots: int64 [T], the cache place of each new token: block * BLOCK_SIZE + offset.
    """

    slots: Tensor
    prefills: tuple[PrefillSpan, ...]
    decodes: tuple[DecodeGroup, ...]


class ReferenceAttention(PagedAttention):
    """Cache: keys and values of each layer of a group, [blocks * BLOCK_SIZE, kv_heads, head_dim].

    Layers of different groups that have the same place in a block share them.
    """

    def __init__(self, spec: ModelSpec, num_blocks: int, dtype: torch.dtype) -> None:
        shape = (num_blocks * BLOCK_SIZE, spec.num_kv_heads, spec.head_dim)
        self._groups = spec.kv_groups
        self._scores = Scores.of(spec)
        self._keys = [torch.empty(shape, dtype=dtype) for _ in range(self._groups.depth)]
        self._values = [torch.empty(shape, dtype=dtype) for _ in range(self._groups.depth)]

    def copy_block(self, source: int, target: int) -> None:
        """See PagedAttention."""
        for cache in (*self._keys, *self._values):
            blocks = cache.view(-1, BLOCK_SIZE, *cache.shape[1:])
            blocks[target] = blocks[source]

    def plan(self, spans: Sequence[SeqSpan]) -> list[GroupPlan]:
        """See AttentionBackend."""
        windows = self._groups.windows
        return [
            _plan_group([_of_group(span, group, len(windows)) for span in spans], window)
            for group, window in enumerate(windows)
        ]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: list[GroupPlan]) -> Tensor:
        """See AttentionBackend."""
        group, place = self._groups.places[layer]
        keys, values, work = self._keys[place], self._values[place], plan[group]
        keys.index_copy_(0, work.slots, k)
        values.index_copy_(0, work.slots, v)
        out = torch.empty_like(q)
        for span in work.prefills:
            if span.mask is None:
                out[span.rows] = self._scores.causal(q[span.rows], k[span.rows], v[span.rows])
            else:
                seen_k, seen_v = (cache.index_select(0, span.slots) for cache in (keys, values))
                out[span.rows] = self._scores.masked(q[span.rows], seen_k, seen_v, span.mask)
        for decode in work.decodes:
            out[decode.rows] = _attend_one(q[decode.rows], keys, values, decode, self._scores)
        return out


def create(spec: ModelSpec, num_blocks: int, dtype: torch.dtype) -> ReferenceAttention:
    """Factory row of engine.attention."""
    return ReferenceAttention(spec, num_blocks, dtype)


def _attend_one(q: Tensor, keys: Tensor, values: Tensor, decode: DecodeGroup, scores: Scores) -> Tensor:
    """q [B, heads, head_dim]; the heads that share a key stand where its queries' positions would."""
    batch, heads, head_dim = q.shape
    kv_heads = keys.shape[1]
    k, v = (
        cache.index_select(0, decode.slots).view(batch, -1, kv_heads, head_dim).transpose(1, 2)
        for cache in (keys, values)
    )
    grouped = q.view(batch, kv_heads, heads // kv_heads, head_dim)
    return scores.attend(grouped, k, v, decode.mask).reshape(q.shape)


def _slots(block_table: Sequence[int], start: int, end: int) -> Tensor:
    """Cache places of the positions start .. end - 1; int64."""
    first = start // BLOCK_SIZE
    blocks = torch.tensor(block_table[first : blocks_for(end)])
    places = (blocks[:, None] * BLOCK_SIZE + torch.arange(BLOCK_SIZE)).flatten()
    return places[start - first * BLOCK_SIZE : end - first * BLOCK_SIZE]


def _lowest(position: int, window: Window) -> int:
    """The first position that the token at `position` sees."""
    return 0 if window is None else max(0, position - window + 1)


def _of_group(span: SeqSpan, group: int, groups: int) -> SeqSpan:
    """The span with its table of one group."""
    return replace(span, block_table=span.block_table[group::groups])


def _plan_group(spans: Sequence[SeqSpan], window: Window) -> GroupPlan:
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
    slots = torch.cat([_slots(span.block_table, span.start, span.start + span.count) for span in spans])
    return GroupPlan(slots, tuple(prefills), decodes)


def _prefill(span: SeqSpan, row: int, window: Window) -> PrefillSpan:
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


def _decode_group(members: list[tuple[int, SeqSpan]], window: Window) -> DecodeGroup:
    places = [_slots(span.block_table, _lowest(span.start, window), span.start + 1) for _, span in members]
    lengths = torch.tensor([len(own) for own in places])
    slots = torch.nn.utils.rnn.pad_sequence(places, batch_first=True, padding_value=-1)
    mask = torch.arange(slots.shape[1])[None, :] < lengths[:, None]
    slots = torch.where(mask, slots, slots[:, :1])
    rows = torch.tensor([row for row, _ in members])
    return DecodeGroup(rows, slots.flatten(), mask[:, None, None, :])
