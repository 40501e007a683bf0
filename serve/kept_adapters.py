"""The adapters that a replica keeps because the registry pins them: one residency pin each."""

import asyncio
from collections.abc import Mapping

from lora.residency import Residency
from lora.residents import Pin


class KeptAdapters:
    """Owns the pins; they are released when the registry names them no more, or with the residency itself."""

    def __init__(self, residency: Residency) -> None:
        self._residency = residency
        self._wanted: Mapping[str, bool] = {}
        self._epoch = -1
        self._pins: dict[str, Pin] = {}

    def __contains__(self, digest: str) -> bool:
        return digest in self._pins

    async def keep(self, epoch: int, wanted: Mapping[str, bool]) -> dict[str, str]:
        """Hold exactly `wanted` (digest -> whether it is forced onto another base) as of a registry epoch.

        An older epoch than the newest seen is ignored. Returns why for each that could not be loaded.
        """
        if epoch < self._epoch:
            return {}
        self._epoch, self._wanted = epoch, wanted
        for digest in self._pins.keys() - wanted.keys():
            self._residency.release(self._pins.pop(digest))
        missing = [digest for digest in wanted if digest not in self._pins]
        outcomes = await asyncio.gather(*map(self._hold, missing), return_exceptions=True)
        return {
            digest: str(outcome)
            for digest, outcome in zip(missing, outcomes, strict=True)
            if outcome is not None
        }

    async def _hold(self, digest: str) -> None:
        pin = await self._residency.acquire(digest, force=self._wanted[digest])
        if digest in self._pins or digest not in self._wanted:  # another call was faster
            self._residency.release(pin)
        else:
            self._pins[digest] = pin
