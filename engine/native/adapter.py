"""Adapters packed for the native library: made on any thread, beside the steps of a model. Knows no slots."""

from __future__ import annotations

import weakref
from ctypes import CDLL

import torch

from engine.adapter_fit import AdapterFit
from engine.adapter_weights import AdapterWeights
from engine.modelspec import ModelSpec
from engine.native.adapter_parts import PartFiller
from engine.native.linear_changes import LinearChanges
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
        self._linear = LinearChanges(library, spec)
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
        self._linear.put(handle, fit, weights)
        self._filler.fill(handle, fit, weights)
        made.nbytes = int(self._library.noria_adapter_bytes(handle))
        return made

    def handle_of(self, prepared: PreparedAdapter) -> int:
        """Raises ValueError for what was prepared by another model."""
        if not isinstance(prepared, NativeAdapter) or prepared.packer is not self:
            raise ValueError(f"adapter {prepared.digest!r} was prepared by another model")
        return prepared.handle
