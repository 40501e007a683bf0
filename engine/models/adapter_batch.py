"""The adapters of one step's tokens: what each of them makes of its own rows, where a decoder asks.

Every method changes rows of an output that the decoder has made from base weights. Rows without an adapter
are not touched, and no row is computed from another adapter's values. Pairs run stacked, in a number of
products that does not grow with the number of adapters; all else is rarer and goes adapter by adapter.
Knows no digests, no slots beyond their numbers and no families.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.adapter_weights import AdapterWeights
from engine.models.lora_stack import Stack
from engine.models.module_groups import ModuleGroup, head_group

if TYPE_CHECKING:
    from engine.models.norms import Norm


class AdapterBatch:
    """Made by AdapterSlots.batch. Its adapters are in the model's dtype, their scales within B."""

    def __init__(self, stack: Stack, adapters: Mapping[int, AdapterWeights], token_slots: Tensor) -> None:
        """token_slots: int64 [T], 0 where a token has no adapter. stack: of these adapters at least."""
        self._stack = stack
        self._adapters = adapters
        self._token_slots = token_slots
        taking_part = token_slots.nonzero().flatten()
        self._rows = None if len(taking_part) == len(token_slots) else taking_part
        own = token_slots[taking_part, None]
        alone = len(stack.slots) == 1
        self._foreign = None if alone else [own != owners for owners in stack.owners]
        self._own = [
            (adapter, rows)
            for slot, adapter in adapters.items()
            if len(rows := (token_slots == slot).nonzero().flatten())
        ]

    def at(self, rows: Tensor) -> AdapterBatch:
        """The same for some of the tokens."""
        return AdapterBatch(self._stack, self._adapters, self._token_slots[rows])

    def linear(self, group: ModuleGroup, x: Tensor, y: Tensor) -> None:
        """What adapters make of y [T, out of the group], which the group's modules made of x [T, in]."""
        for adapter, rows in self._own:
            if adapter.affine:
                _apply_affine(adapter, group, y, rows)
        self._add_pairs(group, x, y)

    def norm(self, name: str, norm: Norm, x: Tensor, y: Tensor) -> None:
        """Normalise x [T, hidden] into y by adapters' own weights, where they replace those of `norm`."""
        for adapter, rows in self._own:
            if (weights := adapter.norms.get(name)) is not None:
                y[rows] = norm.replaced(weights)(x[rows])

    def embed(self, token_ids: Tensor, y: Tensor) -> None:
        """Change y [T, hidden], the rows of the base's table for token_ids [T]."""
        for adapter, rows in self._own:
            y[rows] = _embedded(adapter, token_ids[rows], y[rows])

    def head(self, x: Tensor, y: Tensor) -> None:
        """What adapters make of the logits y [T, vocab] of x [T, hidden]."""
        for adapter, rows in self._own:
            if adapter.head is not None:
                y[rows] = F.linear(x[rows], adapter.head)
            if (tokens := adapter.tokens) is not None and tokens.in_head:
                y[rows[:, None], tokens.ids] = F.linear(x[rows], tokens.rows)
        self.linear(head_group(y.shape[1]), x, y)

    def _add_pairs(self, group: ModuleGroup, x: Tensor, y: Tensor) -> None:
        stacked = self._stack.groups.get(group.names)
        if stacked is None:
            return
        inner = (x if self._rows is None else x[self._rows]) @ stacked.a
        if self._foreign is not None:
            # Filled, not multiplied by zero: another adapter may overflow on this token's input.
            inner.masked_fill_(self._foreign[stacked.layout], 0.0)
        for module in stacked.modules:
            part = y[:, module.out]
            if self._rows is None:
                part.addmm_(inner[:, module.ranks], module.b)
            else:
                part.index_add_(0, self._rows, inner[:, module.ranks] @ module.b)


def _apply_affine(adapter: AdapterWeights, group: ModuleGroup, y: Tensor, rows: Tensor) -> None:
    column = 0
    for name, width in zip(group.names, group.widths, strict=True):
        part = y[:, column : column + width]
        column += width
        if (affine := adapter.affine.get(name)) is not None:
            wide = part[rows].to(torch.float32)
            if affine.gain is not None:
                wide *= affine.gain
            if affine.shift is not None:
                wide += affine.shift
            part[rows] = wide.to(y.dtype)


def _embedded(adapter: AdapterWeights, ids: Tensor, base: Tensor) -> Tensor:
    """Rows of one adapter's tokens: from its own table, its own rows, its delta. base: [n, hidden]."""
    rows = base if adapter.table is None else F.embedding(ids, adapter.table)
    if (tokens := adapter.tokens) is not None:
        place = torch.searchsorted(tokens.ids, ids).clamp(max=len(tokens.ids) - 1)
        rows = torch.where((tokens.ids[place] == ids)[:, None], tokens.rows[place], rows)
    if (delta := adapter.embedding) is not None:
        if delta.gain is not None:
            rows = (rows.to(torch.float32) * delta.gain).to(rows.dtype)
        rows = rows + F.embedding(ids, delta.a.T) @ delta.b.T
    return rows
