"""A model whose steps run in the native library: sequences of a step in, scores out, and tokens of them.

Owns the library's model: packed weights and KV cache live and die with this object.
"""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.adapter_weights import AdapterWeights
from engine.config import Form
from engine.errors import NativeUnavailable
from engine.modelspec import ModelSpec
from engine.native.adapter import AdapterPacker, NativeAdapter
from engine.native.batch import StepArrays
from engine.native.build import default_cache
from engine.native.draw import DrawArrays
from engine.native.levels import Level, choose_level
from engine.native.library import open_library
from engine.native.results import ScoreArrays
from engine.native.spec import library_spec
from engine.native.weights import Packer, load_weights
from engine.ports import PreparedAdapter
from engine.prompt_logprobs import most_wanted
from engine.records import BlockCopy, SampledRow, ScheduledSeq
from engine.sampler import sampled_rows
from engine.scores import Scores

MAX_HEAD_DIM = 256
"""kMaxHeadDim of csrc/kernels.h."""

Int32s = np.ndarray[tuple[int], np.dtype[np.int32]]

_ERROR_BYTES = 256


class NativeModel:
    """One decoder with its cache of `num_blocks` blocks. Used by one thread at a time."""

    def __init__(
        self,
        spec: ModelSpec,
        dtype: torch.dtype,
        num_blocks: int,
        *,
        max_rank: int,
        threads: int,
        weights: Form = "model",
        kv_cache: Form = "model",
        level: Level = "best",
        cache: Path | None = None,
    ) -> None:
        """Weights are zero until `load`; their form and the cache's are those of EngineConfig.

        Raises NativeUnavailable.
        """
        if spec.head_dim > MAX_HEAD_DIM or spec.head_dim % 2:
            raise NativeUnavailable(
                f"head_dim is {spec.head_dim}; the kernels take even ones up to {MAX_HEAD_DIM}"
            )
        self.spec = spec
        self._positions = spec.max_position if spec.names.places else None
        self._dtype = dtype
        self._num_blocks = num_blocks
        self._groups = len(spec.kv_groups.windows)
        self._memory = self._logits = torch.empty(0, spec.vocab_size)
        self._rows = self._most_rows = 0
        self._library = open_library(cache or default_cache())
        self._handle = self._create(
            num_blocks, threads, weights, kv_cache, choose_level(self._library, level)
        )
        weakref.finalize(self, self._library.noria_destroy, self._handle)
        self._packer = AdapterPacker(self._library, self._handle, spec, dtype, max_rank)
        self._bound: dict[int, PreparedAdapter] = {}

    def load(self, folder: Path) -> None:
        """Read and pack the weights of `folder`. Raises BadWeights."""
        load_weights(folder, self.spec, self._dtype, Packer(self._library, self._handle))

    def scores(self, seqs: Sequence[ScheduledSeq]) -> Scores:
        """Write keys and values of `seqs`; scores of those that sample, in order, and of scored positions.

        The next call overwrites the logits: fresh memory for every step would cost a page fault every 4 KiB.
        Raises ValueError for sequences that would reach outside.
        """
        limits = {"vocab": self.spec.vocab_size, "groups": self._groups, "num_blocks": self._num_blocks}
        arrays = StepArrays(seqs, **limits, positions=self._positions)
        out = self._room(arrays.samples)
        best = array("i", bytes(4 * arrays.samples))
        arrays.batch.logits, arrays.batch.best = out.data_ptr(), best.buffer_info()[0]
        prompts = ScoreArrays(arrays.batch, arrays.scored, min(most_wanted(seqs), self.spec.vocab_size))
        if self._library.noria_step(self._handle, arrays.batch) != 0:
            raise MemoryError(f"no memory for a step of {sum(seq.count for seq in seqs)} tokens")
        return Scores(out, best.tolist(), prompts.read())

    def sample(self, scores: Scores, seqs: Sequence[ScheduledSeq]) -> list[SampledRow]:
        """See StepModel; on the threads of a step."""
        arrays = DrawArrays(scores.best, seqs, self.spec.vocab_size)
        if len(arrays.rows) and self._library.noria_draw_tokens(
            self._handle, scores.logits.data_ptr(), arrays.rows, len(arrays.rows)
        ):
            raise MemoryError(f"no memory to draw from {len(arrays.rows)} rows")
        return sampled_rows(scores, seqs, *arrays.read())

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Copy keys and values of whole blocks, one after another. Raises ValueError for one it lacks."""
        pairs = _joined([(copy.source, copy.target) for copy in copies])
        if pairs.min() < 0 or pairs.max() >= self._num_blocks:
            found = f"{pairs.min()} .. {pairs.max()}"
            raise ValueError(f"blocks to copy lie in {found}; the model has 0 .. {self._num_blocks - 1}")
        self._library.noria_copy(self._handle, pairs.ctypes.data, len(copies))

    def prepare_adapter(self, weights: AdapterWeights) -> NativeAdapter:
        """See StepModel."""
        return self._packer.pack(weights)

    def bind_adapter(self, slot: int, prepared: PreparedAdapter) -> None:
        """See StepModel. Raises ValueError for what this model has not prepared."""
        handle = self._packer.handle_of(prepared)
        self._library.noria_bind(self._handle, slot, handle)
        self._bound[slot] = prepared

    def unbind_adapter(self, slot: int) -> None:
        """See StepModel."""
        self._library.noria_unbind(self._handle, slot)
        self._bound.pop(slot, None)

    def _room(self, rows: int) -> Tensor:
        """Memory for that many rows of logits; torch cuts it slowly, so only where their number changed."""
        if rows != self._rows:
            if rows > self._most_rows:
                self._memory, self._most_rows = torch.empty(rows, self.spec.vocab_size), rows
            self._logits, self._rows = self._memory[:rows], rows
        return self._logits

    def _create(self, num_blocks: int, threads: int, weights: Form, kv_cache: Form, level: int) -> int:
        machine = {"level": level, "threads": threads, "num_blocks": num_blocks}
        machine |= {"int8_weights": weights == "int8", "int8_cache": kv_cache == "int8"}
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        settings = library_spec(self.spec, self._dtype, **machine)
        handle = self._library.noria_create(settings, error, _ERROR_BYTES)
        if handle is None:
            raise NativeUnavailable(f"the native model could not be made: {error.value.decode()}")
        return int(handle)


def _joined(lists: Sequence[Sequence[int]]) -> Int32s:
    return np.fromiter(chain.from_iterable(lists), np.int32)
