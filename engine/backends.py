"""The backends that compute a step, and the choice between them.

native       C++ on packed weights, for x86-64 with AVX2 and a C++ compiler; fast
reference    torch; always right, runs everywhere: the oracle and the fallback
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

import torch

from engine.adapter_weights import AdapterWeights
from engine.config import EngineConfig
from engine.dtypes import DTYPES
from engine.errors import InvalidConfig, NativeUnavailable
from engine.modelspec import ModelSpec
from engine.native.model import NativeModel
from engine.ports import PreparedAdapter
from engine.records import BlockCopy, SampledRow, ScheduledSeq
from engine.reference import ReferenceModel
from engine.scores import Scores

logger = logging.getLogger(__name__)


class StepModel(Protocol):
    """Weights, KV cache and adapter slots of one model.

    Called from one thread at a time, but for prepare_adapter, which any thread may call at any time.
    """

    def scores(self, seqs: Sequence[ScheduledSeq]) -> Scores:
        """Write keys and values of `seqs`; scores of those that sample, in order, and of scored positions."""

    def sample(self, scores: Scores, seqs: Sequence[ScheduledSeq]) -> list[SampledRow]:
        """Tokens out of the latest scores, whose sequences `seqs` are; as engine.sampler says."""

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Copy keys and values of whole blocks, one after another."""

    def prepare_adapter(self, weights: AdapterWeights) -> PreparedAdapter:
        """All checks and packing, on any thread, beside a running step.

        Raises AdapterTooLarge, AdapterMismatch or MemoryError.
        """

    def bind_adapter(self, slot: int, prepared: PreparedAdapter) -> None:
        """Give slot 1 or higher to an adapter of this model, whatever it held before; between two steps."""

    def unbind_adapter(self, slot: int) -> None:
        """Empty a slot, if it is not empty; between two steps."""


def open_model(config: EngineConfig, spec: ModelSpec, num_blocks: int) -> StepModel:
    """The model of `config.model` on the backend that `config.backend` asks for.

    Raises BadWeights, NativeUnavailable where "native" is asked for and cannot be had, and InvalidConfig
    for what only the native backend has.
    """
    if config.backend == "reference":
        _refuse_int8(config)
        return _open_reference(config, spec, num_blocks)
    try:
        return _open_native(config, spec, num_blocks)
    except NativeUnavailable as error:
        if config.backend == "native":
            raise
        _refuse_int8(config, error)
        logger.warning("the reference backend serves, several times slower than the native one: %s", error)
        return _open_reference(config, spec, num_blocks)


def _open_native(config: EngineConfig, spec: ModelSpec, num_blocks: int) -> NativeModel:
    threads = config.threads or torch.get_num_threads()
    dtype = DTYPES[config.dtype]
    model = NativeModel(
        spec,
        dtype,
        num_blocks,
        max_rank=config.max_lora_rank,
        threads=threads,
        weights=config.weights,
        kv_cache=config.kv_cache,
    )
    # What is left to torch, a look at each weight and sampling, is small; its threads would wait for each
    # other while a neighbour runs, and go on spinning into the next step.
    torch.set_num_threads(1)
    model.load(config.model)
    return model


def _refuse_int8(config: EngineConfig, cause: NativeUnavailable | None = None) -> None:
    """The reference backend serves the model as it is, or refuses."""
    for name, form in (("weights", config.weights), ("kv_cache", config.kv_cache)):
        if form != "model":
            refusal = f"{name} is {form!r}; the reference backend allows 'model'"
            raise InvalidConfig(refusal if cause is None else f"{refusal}, and {cause}")


def _open_reference(config: EngineConfig, spec: ModelSpec, num_blocks: int) -> ReferenceModel:
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    return ReferenceModel(config.model, spec, DTYPES[config.dtype], num_blocks, config.max_lora_rank)
