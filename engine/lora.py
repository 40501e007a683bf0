"""LoRA adapters inside one batch: what a slot holds, and the delta each token gets from its own slot.

A step with adapters runs, for every group of modules that read the same input, one product with the A
matrices of all adapters in the step stacked side by side, a mask that leaves each token its own
adapter's share, and one product a module with the stacked B matrices: the number of calls does not
grow with the number of adapters. Tokens without an adapter take no part and a step without adapters
does nothing here. Knows no digests beyond messages, no files, no policy of who is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.adapter_weights import AdapterWeights, LoraPair
from engine.errors import AdapterMismatch, AdapterTooLarge
from engine.modelspec import ModelSpec
from engine.ports import PreparedAdapter

Key = tuple[int, str]
"""Layer and group."""


@dataclass(frozen=True, slots=True)
class StackedModule:
    """B matrices of one module: b [ranks, out], the part of A's rows it reads, its place in the output."""

    b: Tensor
    ranks: slice
    out: slice


@dataclass(frozen=True, slots=True)
class StackedGroup:
    """Matrices of one group for a set of slots. a: [in, ranks]. layout: index into Stack.owners."""

    a: Tensor
    modules: tuple[StackedModule, ...]
    layout: int


@dataclass(frozen=True, slots=True)
class Stack:
    """All groups for a set of slots. owners: for each distinct layout, int64 [ranks], whose rank it is."""

    slots: tuple[int, ...]
    groups: Mapping[Key, StackedGroup]
    owners: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class PreparedLora:
    """An adapter for slots. modules: name -> A [r, in] and scale * B [out, r] in the model's dtype."""

    digest: str
    modules: Mapping[str, tuple[Tensor, Tensor]]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for pair in self.modules.values() for tensor in pair)


class LoraBatch:
    """The adapters of one step's tokens. Made by LoraSlots.batch."""

    def __init__(self, stack: Stack, token_slots: Tensor) -> None:
        """token_slots: int64 [T], 0 where a token has no adapter."""
        self._stack = stack
        rows = token_slots.nonzero().flatten()
        self._rows = None if len(rows) == len(token_slots) else rows
        own = token_slots[rows, None]
        alone = len(stack.slots) == 1
        self._foreign = None if alone else [own != owners for owners in stack.owners]

    def add_delta(self, layer: int, group: str, x: Tensor, y: Tensor) -> None:
        """Add to y [T, out of the group] what each token's adapter makes of x [T, in]."""
        stacked = self._stack.groups.get((layer, group))
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


class LoraSlots:
    """Adapters by slot number. Refers to them from `bind` to `unbind`; owns the stack last used."""

    def __init__(self, spec: ModelSpec, max_rank: int, dtype: torch.dtype) -> None:
        self._targets = spec.linear_modules
        self._shapes = spec.module_shapes()
        self._groups = spec.groups
        self._layers = [f"{spec.layers_at}.{layer}" for layer in range(spec.num_layers)]
        self._max_rank = max_rank
        self._dtype = dtype
        self._bound: dict[int, PreparedLora] = {}
        self._stack = Stack((), {}, ())

    def prepare(self, weights: AdapterWeights) -> PreparedLora:
        """Changes nothing here: any thread may. Raises AdapterTooLarge or AdapterMismatch."""
        converted = {
            name: fit_pair(self._targets, self._max_rank, self._dtype, weights.digest, name, pair)
            for name, pair in weights.modules.items()
        }
        return PreparedLora(weights.digest, converted)

    def bind(self, slot: int, prepared: PreparedAdapter) -> None:
        """Give `slot` to an adapter, whatever it held. Raises ValueError for one of another backend."""
        if not isinstance(prepared, PreparedLora):
            raise ValueError(f"adapter {prepared.digest!r} was prepared by another backend")
        self.unbind(slot)
        self._bound[slot] = prepared

    def unbind(self, slot: int) -> None:
        """Empty `slot`, if it is not empty."""
        if slot in self._stack.slots:
            self._stack = Stack((), {}, ())
        self._bound.pop(slot, None)

    def batch(self, slots: Sequence[int], counts: Sequence[int]) -> LoraBatch | None:
        """slots[i] is the slot of the next counts[i] tokens; None when all of them are 0."""
        active = tuple(sorted({slot for slot in slots if slot in self._bound}))
        if not active:
            return None
        # A stack that holds more than the step needs is used as it is, unless half of it would idle.
        fits = set(active) <= set(self._stack.slots) and 2 * len(active) >= len(self._stack.slots)
        if not fits:
            self._stack = self._stacked(active)
        return LoraBatch(self._stack, torch.repeat_interleave(torch.tensor(slots), torch.tensor(counts)))

    def _stacked(self, slots: tuple[int, ...]) -> Stack:
        groups: dict[Key, StackedGroup] = {}
        layouts: dict[tuple[int, ...], int] = {}
        for key in self._keys():
            if (group := self._stacked_group(key, slots, layouts)) is not None:
                groups[key] = group
        return Stack(slots, groups, tuple(torch.tensor(owners) for owners in layouts))

    def _keys(self) -> Iterator[Key]:
        return ((layer, group) for layer in range(len(self._layers)) for group in self._groups)

    def _stacked_group(
        self, key: Key, slots: tuple[int, ...], layouts: dict[tuple[int, ...], int]
    ) -> StackedGroup | None:
        """One group of `slots`, None where no adapter changes it; a new layout is added to `layouts`."""
        owners: list[int] = []
        rows: list[Tensor] = []
        modules: list[StackedModule] = []
        column = 0
        for module in self._groups[key[1]]:
            first, columns = len(owners), list[Tensor]()
            for slot in slots:
                pair = self._bound[slot].modules.get(f"{self._layers[key[0]]}.{module}")
                if pair is not None:
                    rows.append(pair[0])
                    columns.append(pair[1])
                    owners += [slot] * pair[0].shape[0]
            width = self._shapes[module][0]
            if columns:
                b = torch.cat(columns, dim=1).T.contiguous()
                out = slice(column, column + width)
                modules.append(StackedModule(b, slice(first, len(owners)), out))
            column += width
        if not modules:
            return None
        layout = layouts.setdefault(tuple(owners), len(layouts))
        return StackedGroup(torch.cat(rows).T.contiguous(), tuple(modules), layout)


def fit_pair(
    targets: Mapping[str, tuple[int, int]],
    max_rank: int,
    dtype: torch.dtype,
    digest: str,
    name: str,
    pair: LoraPair,
) -> tuple[Tensor, Tensor]:
    """A [r, in] and scale * B [out, r] of module `name` in `dtype`; `targets` as in ModelSpec.linear_modules.

    Raises AdapterTooLarge, or AdapterMismatch where the module, a shape or a value does not fit the model.
    """
    shape = targets.get(name)
    if shape is None:
        raise AdapterMismatch(f"adapter {digest!r} changes module {name}, which the model does not have")
    rank = pair.a.shape[0]
    if rank > max_rank:
        raise AdapterTooLarge(digest, rank, max_rank)
    for label, tensor, wanted in (("A", pair.a, (rank, shape[1])), ("B", pair.b, (shape[0], rank))):
        if tuple(tensor.shape) != wanted:
            raise AdapterMismatch(
                f"adapter {digest!r}: {label} of {name} has shape {list(tensor.shape)}; "
                f"the model needs {list(wanted)}"
            )
    a, b = pair.a.to(dtype), (pair.b.to(torch.float32) * pair.scale).to(dtype)
    if not bool(a.isfinite().all() and b.isfinite().all()):
        raise AdapterMismatch(f"adapter {digest!r}: {name} has values that are not finite after scaling")
    return a, b
