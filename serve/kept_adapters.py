"""The adapters that a replica keeps because the registry pins them."""

import asyncio
from collections.abc import Mapping

from lora.residency import Residency


class KeptAdapters:
    """Holds the residency's pins at those of the registry; nobody else pins there."""

    def __init__(self, residency: Residency) -> None:
        self._residency = residency
        self._wanted: Mapping[str, bool] = {}
        self._epoch = -1

    async def keep(self, epoch: int, wanted: Mapping[str, bool]) -> dict[str, str]:
        """Pin exactly `wanted` (digest -> whether it is forced onto another base) as of a registry epoch.

        An older epoch than the newest seen is ignored. Returns why for each that could not be pinned.
        """
        if epoch < self._epoch:
            return {}
        self._epoch, self._wanted = epoch, wanted
        pinned = {row.digest for row in self._residency.snapshot() if row.pinned}
        for digest in pinned - wanted.keys():
            self._residency.unpin(digest)
        missing = [digest for digest in wanted if digest not in pinned]
        outcomes = await asyncio.gather(
            *(self._pin(digest, wanted[digest]) for digest in missing), return_exceptions=True
        )
        return {
            digest: str(outcome)
            for digest, outcome in zip(missing, outcomes, strict=True)
            if outcome is not None
        }

    async def _pin(self, digest: str, force: bool) -> None:
        await self._residency.pin(digest, force=force)
        if digest not in self._wanted:  # a newer registry let it go meanwhile
            self._residency.unpin(digest)
