"""What an adapter does to linear modules, handed to the library product by product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ctypes import CDLL

import torch
from torch import Tensor

from engine.adapter_fit import AdapterFit
from engine.adapter_targets import HEAD
from engine.adapter_weights import AdapterWeights
from engine.modelspec import ModelSpec
from engine.native.adapter_parts import expect_room, pointer
from engine.native.library import PLACES, Group, Pairs, Part
from engine.native.weights import module_parts, split_rows


class LinearChanges:
    """Knows which parts of the library's products the modules of one model are."""

    def __init__(self, library: CDLL, spec: ModelSpec) -> None:
        self._library = library
        of_layers: dict[str, tuple[int, Mapping[Part, int]]] = {
            f"{spec.layers_at}.{layer}.{module}": (layer, parts)
            for module, parts in module_parts(spec).items()
            for layer in range(spec.num_layers)
        }
        self._parts = {**of_layers, HEAD: (-1, {Part.HEAD: spec.vocab_size})}

    def put(self, adapter: int, fit: AdapterFit, weights: AdapterWeights) -> None:
        """All of `modules` and `affine`. adapter: its handle. Raises as AdapterFit does, and MemoryError."""
        pairs = {name: fit.pair(name, pair) for name, pair in weights.modules.items()}
        for (layer, group), product in sorted(self._products(pairs).items(), key=lambda item: item[0]):
            expect_room(self._library.noria_adapter_pairs(adapter, layer, group, product))
        for name, affine in weights.affine.items():
            self._affine(adapter, name, *fit.affine(name, affine))

    def _products(self, pairs: Mapping[str, tuple[Tensor, Tensor]]) -> dict[tuple[int, Group], Pairs]:
        """By layer and product; they point into `pairs`."""
        products: dict[tuple[int, Group], Pairs] = {}
        for name, (a, b) in pairs.items():
            layer, parts = self._parts[name]
            # A module that makes several parts is a pair for each, which share its A.
            for part, rows in split_rows(b, parts):
                group, place = PLACES[part]
                product = products.setdefault((layer, group), Pairs())
                product.ranks[place], product.a[place], product.b[place] = (
                    len(a),
                    a.data_ptr(),
                    rows.data_ptr(),
                )
        return products

    def _affine(self, adapter: int, name: str, gain: Tensor | None, shift: Tensor | None) -> None:
        layer, parts = self._parts[name]
        for part, *each in zip(parts, _split(gain, parts), _split(shift, parts), strict=True):
            expect_room(self._library.noria_adapter_affine(adapter, layer, part, *map(pointer, each)))


def _split(whole: Tensor | None, parts: Mapping[Part, int]) -> Iterator[Tensor | None]:
    return iter([None] * len(parts) if whole is None else torch.split(whole, list(parts.values())))
