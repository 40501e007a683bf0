"""From a digest to weights for one base model: fetch, verify, match, read. It blocks, so threads call it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch

from engine.adapter_weights import AdapterWeights
from lora.base_copies import repeated
from lora.errors import AdapterNotFound
from lora.format import DEFAULT_LIMITS, Adapter, Limits, MatchReport, check_against, read_adapter
from lora.local_disk import LocalCopy, LocalDisk
from lora.probe import probe_prompts
from lora.targets import BaseTargets
from lora.tensor_reader import BaseReader
from lora.touched_tokens import touched_tokens
from lora.weights import load_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """What an adapter is matched with. `tensors`: the base's own; `names`: what an adapter may call it."""

    targets: BaseTargets
    tensors: BaseReader
    digest: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fitted:
    """An adapter on the local disk that fits the base model. nbytes: what its weights will take in memory."""

    adapter: Adapter
    report: MatchReport
    nbytes: int
    loader: "AdapterLoader"

    def read(self) -> AdapterWeights:
        """Its weights, ready for the engine. Raises what the store and load_weights raise."""
        return self.loader.read(self)


class AdapterLoader:
    """Loads adapters of one base model, by way of the local disk."""

    def __init__(
        self,
        disk: LocalDisk,
        base: BaseModel,
        *,
        max_rank: int,
        dtype: torch.dtype,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._disk, self._base = disk, base
        self._max_rank, self._dtype, self._limits = max_rank, dtype, limits

    def fit(self, digest: str, *, force: bool = False) -> Fitted:
        """Fetch an adapter and match it with the base. `force` accepts an adapter of another base.

        Raises what the store, read_adapter and check_against raise.
        """
        try:
            return self._fit(digest, force)
        except AdapterNotFound:  # another process dropped the copy meanwhile
            return self._fit(digest, force)

    def read(self, fitted: Fitted) -> AdapterWeights:
        """See Fitted.read."""
        digest = fitted.adapter.digest
        with self._disk.reading(digest):
            try:
                return self._read(fitted)
            except AdapterNotFound:  # as above, since it was fitted
                self._disk.fetch(digest)
                return self._read(fitted)

    def dropped(self, digest: str) -> tuple[str, ...]:
        """Names of its tensors that only repeat the base's. Raises what fit() and reading them raise."""
        fitted = self._fitted(digest)
        with self._disk.reading(digest):
            return repeated(fitted.adapter, fitted.report, self._base.tensors)

    def probe_prompts(self, digest: str, lengths: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Prompts on which the adapter shows, see lora.probe. Raises what fit() and reading it raise."""
        fitted = self._fitted(digest)
        with self._disk.reading(digest):
            touched = touched_tokens(fitted.adapter, fitted.report, self._base.targets, self._base.tensors)
        return probe_prompts(
            self._base.targets.vocab, lengths, invocation=fitted.adapter.config.invocation, touched=touched
        )

    def reading(self, digest: str) -> AbstractContextManager[Path]:
        """Where the local copy is or comes; it is not removed before the end of the block."""
        return self._disk.reading(digest)

    def forget(self, digest: str) -> None:
        """Remove the local copy; the store keeps its own."""
        self._disk.forget(digest)

    def copies(self) -> dict[str, LocalCopy]:
        """What the local disk has, by digest."""
        return self._disk.copies()

    def _fit(self, digest: str, force: bool) -> Fitted:
        with self._disk.reading(digest):
            folder = self._disk.fetch(digest)
            return self._match(read_adapter(folder, limits=self._limits, known_digest=digest), force)

    def _fitted(self, digest: str) -> Fitted:
        """An adapter that was loaded before: its copy, where it is still here, is not compared once more."""
        try:
            with self._disk.reading(digest) as folder:
                return self._match(read_adapter(folder, limits=self._limits, known_digest=digest), True)
        except AdapterNotFound:
            return self.fit(digest, force=True)

    def _match(self, adapter: Adapter, force: bool) -> Fitted:
        report = check_against(
            adapter,
            self._base.targets,
            base_digest=self._base.digest,
            base_names=self._base.names,
            max_rank=self._max_rank,
            force=force,
        )
        kept = adapter.tensors.keys() - {tensor.name for tensor in report.copies}
        elements = sum(prod(adapter.tensors[name].shape) for name in kept)
        return Fitted(adapter, report, elements * self._dtype.itemsize, self)

    def _read(self, fitted: Fitted) -> AdapterWeights:
        return load_weights(
            fitted.adapter, fitted.report, self._base.targets, self._base.tensors, self._dtype
        )
