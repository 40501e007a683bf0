"""Adapters' weights kept in host memory: one that lost its slot comes back without the disk."""

from collections import OrderedDict

from engine.adapter_weights import AdapterWeights
from lora.weights import weights_bytes


class HostCache:
    """Least recently used weights go first once their bytes pass the budget. For one thread."""

    def __init__(self, budget: int) -> None:
        self._budget, self._used = budget, 0
        self._kept: OrderedDict[str, AdapterWeights] = OrderedDict()

    @property
    def used_bytes(self) -> int:
        """Bytes of everything kept."""
        return self._used

    def get(self, digest: str) -> AdapterWeights | None:
        """The weights if they are here; they then count as just used."""
        weights = self._kept.get(digest)
        if weights is not None:
            self._kept.move_to_end(digest)
        return weights

    def put(self, weights: AdapterWeights) -> None:
        """Keep the weights, unless they alone are over the budget."""
        self.drop(weights.digest)
        size = weights_bytes(weights)
        if size > self._budget:
            return
        self._kept[weights.digest] = weights
        self._used += size
        while self._used > self._budget:
            self.drop(next(iter(self._kept)))

    def drop(self, digest: str) -> int:
        """Forget the weights; returns their bytes, 0 if they were not here."""
        weights = self._kept.pop(digest, None)
        freed = 0 if weights is None else weights_bytes(weights)
        self._used -= freed
        return freed

    def bytes_of(self, digest: str) -> int:
        """Bytes kept for one adapter; asking does not count as use."""
        return weights_bytes(self._kept[digest]) if digest in self._kept else 0

    def digests(self) -> list[str]:
        """Least recently used first."""
        return list(self._kept)

    def check_integrity(self) -> None:
        """Raise AssertionError if the books do not balance."""
        real = sum(weights_bytes(weights) for weights in self._kept.values())
        if real != self._used or self._used > self._budget:
            raise AssertionError(
                f"host cache counts {self._used} bytes, holds {real}, may hold {self._budget}"
            )
