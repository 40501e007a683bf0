"""What residency needs from its neighbours, and the line it shows of each adapter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from engine.adapter_weights import AdapterWeights
from engine.ports import PreparedAdapter


class Fit(Protocol):
    """An adapter that has been fetched and fits the base model."""

    @property
    def nbytes(self) -> int:
        """About what it will take in memory."""

    def read(self) -> AdapterWeights:
        """Its weights. Blocks."""


class Stored(Protocol):
    """A copy on the local disk."""

    @property
    def bytes(self) -> int: ...

    @property
    def used(self) -> float:
        """Last use, unix seconds."""


class Source(Protocol):
    """Where adapters come from. Every call blocks and runs on a thread."""

    def fit(self, digest: str, *, force: bool) -> Fit:
        """Fetch it to the local disk and match it with the base model."""

    def forget(self, digest: str) -> None:
        """Remove the local copy."""

    def copies(self) -> Mapping[str, Stored]:
        """Local copies by digest."""


class Bound(Protocol):
    """What the engine tells of an adapter that it was given."""

    @property
    def slot(self) -> int | None: ...


class AdapterEngine(Protocol):
    """The part of an engine that is needed here."""

    def prepare_adapter(self, weights: AdapterWeights) -> PreparedAdapter:
        """On any thread. Raises what is wrong with the weights."""

    async def add_adapter(self, prepared: PreparedAdapter) -> None:
        """Requests may name it from now on."""

    async def remove_adapter(self, digest: str) -> int:
        """Returns the bytes freed. Raises AdapterInUse, UnknownAdapter."""

    def adapters(self) -> Mapping[str, Bound]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentAdapter:
    """One line of the listing.

    state: "waiting" is for memory; "draining" is on its way out of it; "disk" has nothing but a local copy.
    slot: the one it has at this moment, which a ready adapter need not have. bytes: in memory, of state
    "disk" on disk. pins: requests that use it; waiting: those that wait for it. pinned: it stays. last_use:
    unix seconds, None before the first. load_seconds: what its fetch and preparation took, None before.
    """

    digest: str
    state: Literal["fetching", "waiting", "preparing", "ready", "draining", "disk"]
    bytes: int
    slot: int | None = None
    pins: int = 0
    waiting: int = 0
    pinned: bool = False
    last_use: float | None = None
    load_seconds: float | None = None
