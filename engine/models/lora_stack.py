"""Low-rank pairs of many adapters in as many products as those of one: their matrices side by side.

For every group of modules that read the same input there is one product with the A matrices of all
adapters stacked, a mask that leaves each token its own adapter's share, and one product a module with the
stacked B matrices. Knows no slots beyond their numbers, and nothing but pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.adapter_weights import AdapterWeights
from engine.models.module_groups import ModuleGroup


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
    """All groups, by their modules' names, that an adapter in `slots` gives a pair.

    owners: for each distinct layout, int64 [ranks], the slot of each rank.
    """

    slots: tuple[int, ...]
    groups: Mapping[tuple[str, ...], StackedGroup]
    owners: tuple[Tensor, ...]


EMPTY = Stack((), {}, ())


def stack_pairs(adapters: Mapping[int, AdapterWeights], groups: Iterable[ModuleGroup]) -> Stack:
    """Adapters by slot, their scales within B, stacked for `groups`."""
    stacked: dict[tuple[str, ...], StackedGroup] = {}
    layouts: dict[tuple[int, ...], int] = {}
    for group in groups:
        if (found := _stack_group(group, adapters, layouts)) is not None:
            stacked[group.names] = found
    return Stack(tuple(adapters), stacked, tuple(torch.tensor(owners) for owners in layouts))


def _stack_group(
    group: ModuleGroup, adapters: Mapping[int, AdapterWeights], layouts: dict[tuple[int, ...], int]
) -> StackedGroup | None:
    """None where no adapter has a pair for it; a new layout is added to `layouts`."""
    owners: list[int] = []
    rows: list[Tensor] = []
    modules: list[StackedModule] = []
    column = 0
    for name, width in zip(group.names, group.widths, strict=True):
        first, columns = len(owners), list[Tensor]()
        for slot, adapter in adapters.items():
            if (pair := adapter.modules.get(name)) is not None:
                rows.append(pair.a)
                columns.append(pair.b)
                owners += [slot] * len(pair.a)
        if columns:
            b = torch.cat(columns, dim=1).T.contiguous()
            modules.append(StackedModule(b, slice(first, len(owners)), slice(column, column + width)))
        column += width
    if not modules:
        return None
    layout = layouts.setdefault(tuple(owners), len(layouts))
    return StackedGroup(torch.cat(rows).T.contiguous(), tuple(modules), layout)
