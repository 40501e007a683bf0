"""What residency needs from its neighbours, and the line it shows of each adapter."""

from dataclasses import dataclass
from typing import Literal, Protocol

from engine.adapter_weights import AdapterWeights
from engine.ports import PreparedAdapter
from lora.residents import State


class SlotEngine(Protocol):
    """The part of an engine that is needed here."""

    def prepare_adapter(self, weights: AdapterWeights) -> PreparedAdapter:
        """Blocks, and runs on a thread."""

    async def add_adapter(self, prepared: PreparedAdapter) -> None:
        """Requests may name it from now on."""

    async def remove_adapter(self, digest: str) -> int:
        """Let go of it; returns the bytes freed. Raises AdapterInUse, UnknownAdapter."""


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
