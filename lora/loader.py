"""From a digest to weights for one base model: fetch, verify, match, read. It blocks, so threads call it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.adapter_weights import AdapterWeights
from lora.errors import AdapterNotFound
from lora.folders import remove
from lora.format import DEFAULT_LIMITS, Limits, check_against, read_adapter
from lora.store import AdapterStore, local_folder
from lora.weights import load_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """What an adapter is matched with. `targets`: module -> (out, in); `names`: what it may call its base."""

    targets: Mapping[str, tuple[int, int]]
    digest: str
    names: tuple[str, ...]


class AdapterLoader:
    """Loads adapters of one base model from a store, by way of a local folder of fetched copies."""

    def __init__(
        self,
        store: AdapterStore,
        cache: Path,
        base: BaseModel,
        *,
        max_rank: int,
        dtype: torch.dtype,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._store, self._cache, self._base = store, cache, base
        self._max_rank, self._dtype, self._limits = max_rank, dtype, limits

    def load(self, digest: str, *, force: bool = False) -> AdapterWeights:
        """Weights ready for a slot. `force` accepts an adapter of another base.

        Raises what the store, read_adapter, check_against and load_weights raise.
        """
        try:
            return self._load(digest, force)
        except (
            FileNotFoundError,
            AdapterNotFound,
        ):  # another replica on this machine dropped the local copy meanwhile
            return self._load(digest, force)

    def forget(self, digest: str) -> None:
        """Remove the local copy; the store keeps its own."""
        remove(local_folder(digest, self._cache))

    def _load(self, digest: str, force: bool) -> AdapterWeights:
        folder = self._store.fetch(digest, self._cache)
        adapter = read_adapter(folder, limits=self._limits, known_digest=digest)
        report = check_against(
            adapter,
            self._base.targets,
            base_digest=self._base.digest,
            base_names=self._base.names,
            max_rank=self._max_rank,
            force=force,
        )
        return load_weights(adapter, report, self._dtype)
