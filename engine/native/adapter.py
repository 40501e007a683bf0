"""Adapters packed for the native library: made on any thread, beside the steps of a model. Knows no slots."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from ctypes import CDLL

import torch
from torch import Tensor

from engine.adapter_fit import AdapterFit
from engine.adapter_targets import HEAD
from engine.adapter_weights import AdapterWeights
from engine.modelspec import ModelSpec
from engine.native.adapter_parts import PartFiller
from engine.native.library import Part
from engine.native.weights import module_parts, split_rows
from engine.ports import PreparedAdapter


class NativeAdapter:
    """One adapter in the library's own form; owns that memory, which is freed with its last reference."""

    def __init__(self, packer: AdapterPacker, library: CDLL, handle: int, weights: AdapterWeights) -> None:
        """Takes `handle` over."""
        self.packer = packer
        self.handle = handle
        self.digest = weights.digest
        self.invocation = weights.invocation
        self.nbytes = 0
        weakref.finalize(self, library.noria_adapter_destroy, handle)


class AdapterPacker:
    """Makes adapters for one model of the library, which has to live while one is made."""

    def __init__(self, library: CDLL, model: int, spec: ModelSpec, dtype: torch.dtype, max_rank: int) -> None:
        self._library = library
        self._model = model
        self._targets = spec.adapter_targets
        self._parts = _parts_by_name(spec)
        self._filler = PartFiller(library, spec)
        self._dtype = dtype
        self._max_rank = max_rank

    @torch.inference_mode()
    def pack(self, weights: AdapterWeights) -> NativeAdapter:
        """Raises AdapterTooLarge, AdapterMismatch or MemoryError; nothing is left then."""
        handle = self._library.noria_adapter_create(self._model)
        if handle is None:
            raise MemoryError(f"no memory for adapter {weights.digest!r}")
        made = NativeAdapter(self, self._library, handle, weights)
        fit = AdapterFit(weights.digest, self._targets, self._dtype, self._max_rank)
        fit.check_combination(weights)
        for name, pair in weights.modules.items():
            self._add_pair(made, name, *fit.pair(name, pair))
        self._filler.fill(handle, fit, weights)
        made.nbytes = int(self._library.noria_adapter_bytes(handle))
        return made

    def handle_of(self, prepared: PreparedAdapter) -> int:
        """Raises ValueError for what was prepared by another model."""
        if not isinstance(prepared, NativeAdapter) or prepared.packer is not self:
            raise ValueError(f"adapter {prepared.digest!r} was prepared by another model")
        return prepared.handle

    def _add_pair(self, made: NativeAdapter, name: str, a: Tensor, b: Tensor) -> None:
        """A module that makes several parts becomes one pair for each, all with the same A."""
        layer, parts = self._parts[name]
        for part, rows in split_rows(b, parts):
            pointers = a.data_ptr(), rows.data_ptr()
            if self._library.noria_adapter_pair(made.handle, layer, part, a.shape[0], *pointers) != 0:
                raise MemoryError(f"no memory for {name} of adapter {made.digest!r}")


def _parts_by_name(spec: ModelSpec) -> dict[str, tuple[int, Mapping[Part, int]]]:
    """Layer and parts of each linear module, by its whole name."""
    of_layers: dict[str, tuple[int, Mapping[Part, int]]] = {
        f"{spec.layers_at}.{layer}.{module}": (layer, parts)
        for module, parts in module_parts(spec).items()
        for layer in range(spec.num_layers)
    }
    return {**of_layers, HEAD: (-1, {Part.HEAD: spec.vocab_size})}
