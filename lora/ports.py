"""What residency needs from its neighbours, and the line it shows of each adapter."""

from dataclasses import dataclass
from typing import Literal, Protocol

from engine.adapter_weights import AdapterWeights
from lora.residents import State


class SlotEngine(Protocol):
    """The part of an engine that is needed here."""

    async def load_adapter(self, weights: AdapterWeights) -> int:
        """Fill a free slot; returns it."""

    async def unload_adapter(self, digest: str) -> int:
        """Empty a slot; returns the bytes freed. Raises AdapterInUse, UnknownAdapter."""


class WeightsLoader(Protocol):
    """Where weights come from. Both calls block and run on a thread."""

    def load(self, digest: str, *, force: bool) -> AdapterWeights: ...

    def forget(self, digest: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ResidentAdapter:
    """One line of the listing. `state` "host" means in host memory only. Sizes in bytes."""

    digest: str
    state: State | Literal["host"]
    slot: int | None
    pins: int
    waiting: int
    device_bytes: int
    host_bytes: int
