"""Which layers share a KV block: those of one group, all of which see equally far back.

A block holds BLOCK_SIZE tokens in the layers of one group. Every group has room for `depth` layers, so one
pool serves all groups and whatever one gives back suits every other: nothing is divided beforehand. A group
whose layers have a window holds no more than that and the tokens of a step; the others hold whole texts.

What it costs at most, for whatever mix of texts:

    layers that are not there    MAX_WASTE of the bytes of the blocks in use: the layers of one window fill
                                 their groups but for that share (a depth of 1 fills them all)
    tokens that are not there    less than one block a group at the end of a sequence, and one more at its
                                 beginning in a group with a window

Knows no sequence and no tensor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAX_WASTE = 0.125
"""Share of a block's bytes that may belong to no layer."""

Window = int | None
"""Positions that a token sees, its own included; None for all."""


@dataclass(frozen=True, slots=True)
class KVGroups:
    """windows: of each group, the widest first. places: of each layer, its group and where in a block it is.

    depth: layers that a block has room for.
    """

    windows: tuple[Window, ...]
    places: tuple[tuple[int, int], ...]
    depth: int


def group_layers(windows: Sequence[Window]) -> KVGroups:
    """The fewest groups of layers, given the window of each, that keep the bound of this module."""
    members: dict[Window, list[int]] = defaultdict(list)
    for layer, window in enumerate(windows):
        members[window].append(layer)
    kinds = sorted(members, key=lambda window: -_reach(window))
    sizes = [len(members[window]) for window in kinds]
    depth = min(
        (depth for depth in range(1, max(sizes) + 1) if all(_fits(size, depth) for size in sizes)),
        key=lambda depth: (_groups(sizes, depth), depth),
    )
    places, of_groups = [(0, 0)] * len(windows), list[Window]()
    for window in kinds:
        for number, layer in enumerate(members[window]):
            places[layer] = len(of_groups) + number // depth, number % depth
        of_groups += [window] * _groups([len(members[window])], depth)
    return KVGroups(tuple(of_groups), tuple(places), depth)


def _reach(window: Window) -> float:
    return float("inf") if window is None else window


def _groups(sizes: Iterable[int], depth: int) -> int:
    """Groups that layers of several windows make, so many of each."""
    return sum(-(-size // depth) for size in sizes)


def _fits(size: int, depth: int) -> bool:
    room = _groups([size], depth) * depth
    return room - size <= MAX_WASTE * room
