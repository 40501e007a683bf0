"""What an adapter holds beside changes of linear modules, into the library's own form. Knows no slots."""

from __future__ import annotations

from ctypes import CDLL

import torch
from torch import Tensor

from engine.adapter_fit import AdapterFit
from engine.adapter_weights import AdapterWeights, EmbeddingDelta, NormWeights, TokenRows
from engine.modelspec import ModelSpec
from engine.native.library import Part
from engine.native.weights import layer_norms


class PartFiller:
    """Fills adapters of one model; each tensor is brought to its form alone, and freed before the next."""

    def __init__(self, library: CDLL, spec: ModelSpec) -> None:
        self._library = library
        self._norms = _norms_by_name(spec)

    def fill(self, adapter: int, fit: AdapterFit, weights: AdapterWeights) -> None:
        """All but `modules` and `affine`. adapter: its handle. Raises as AdapterFit does, and MemoryError."""
        for name, norm in weights.norms.items():
            self._norm(adapter, fit, name, norm)
        if weights.table is not None:
            table = fit.matrix("the token table", weights.table)
            expect_room(self._library.noria_adapter_table(adapter, table.data_ptr()))
        if weights.head is not None:
            matrix = fit.matrix("the head's matrix", weights.head)
            expect_room(self._library.noria_adapter_head(adapter, matrix.data_ptr()))
        if weights.embedding is not None:
            self._embedding(adapter, fit, weights.embedding)
        if weights.tokens is not None:
            self._tokens(adapter, fit, weights.tokens)

    def _norm(self, adapter: int, fit: AdapterFit, name: str, norm: NormWeights) -> None:
        weight, bias = fit.norm(name, norm)
        layer, part = self._norms[name]
        pointers = weight.data_ptr(), pointer(bias)
        expect_room(self._library.noria_adapter_norm(adapter, layer, part, *pointers))

    def _embedding(self, adapter: int, fit: AdapterFit, delta: EmbeddingDelta) -> None:
        a, b, gain = fit.embedding(delta)
        rows = a.T.contiguous()
        pointers = rows.data_ptr(), b.data_ptr(), pointer(gain)
        expect_room(self._library.noria_adapter_embedding(adapter, len(a), *pointers))

    def _tokens(self, adapter: int, fit: AdapterFit, tokens: TokenRows) -> None:
        ids, rows = fit.tokens(tokens)
        narrow = ids.to(torch.int32)
        pointers = narrow.data_ptr(), rows.data_ptr()
        expect_room(self._library.noria_adapter_tokens(adapter, len(ids), *pointers, tokens.in_head))


def pointer(tensor: Tensor | None) -> int | None:
    """Where a tensor lies, while it is kept."""
    return None if tensor is None else tensor.data_ptr()


def expect_room(result: int) -> None:
    """Raises MemoryError where the library had none."""
    if result != 0:
        raise MemoryError("no memory for an adapter")


def _norms_by_name(spec: ModelSpec) -> dict[str, tuple[int, Part]]:
    """Layer and part of each norm over the whole hidden state, by its whole name."""
    of_layers = {
        f"{spec.layers_at}.{layer}.{name}": (layer, part)
        for part, name in layer_norms(spec.names).items()
        for layer in range(spec.num_layers)
    }
    return {**of_layers, spec.names.final_norm: (-1, Part.NORM_FINAL)}
