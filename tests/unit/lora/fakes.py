"""A residency on an engine without a model and a source without files."""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.adapter_weights import AdapterWeights
from engine.errors import AdapterInUse, UnknownAdapter
from lora.errors import NotInStore
from lora.residency import Residency
from lora.residents import Pin

SIZE = 64
"""Bytes of each fake adapter that is not given others."""
FOREVER_S = 60.0


@dataclass(frozen=True)
class FakePrepared:
    digest: str
    nbytes: int


@dataclass(frozen=True)
class FakeBound:
    slot: int | None


@dataclass
class FakeEngine:
    """busy: digests it will not let go yet. fail: error of the next preparation. sizes: bytes as prepared."""

    added: dict[str, FakePrepared] = field(default_factory=dict)
    adds: list[str] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    fail: Exception | None = None
    refusals: int = 0

    def prepare_adapter(self, weights: AdapterWeights) -> FakePrepared:
        if self.fail is not None:
            error, self.fail = self.fail, None
            raise error
        return FakePrepared(weights.digest, self.sizes.get(weights.digest, SIZE))

    async def add_adapter(self, prepared: Any) -> None:
        await asyncio.sleep(0)
        self.adds.append(prepared.digest)
        self.added[prepared.digest] = prepared

    async def remove_adapter(self, digest: str) -> int:
        await asyncio.sleep(0)
        if digest in self.busy:
            self.refusals += 1
            raise AdapterInUse(digest, 1)
        if digest not in self.added:
            raise UnknownAdapter(digest, self.added)
        return self.added.pop(digest).nbytes

    def adapters(self) -> Mapping[str, FakeBound]:
        return {digest: FakeBound(1 if digest == "a" else None) for digest in self.added}

    @property
    def bytes(self) -> int:
        return sum(prepared.nbytes for prepared in self.added.values())


@dataclass(frozen=True)
class FakeFit:
    digest: str
    nbytes: int
    source: "FakeSource"

    def read(self) -> AdapterWeights:
        self.source.reads.append(self.digest)
        return AdapterWeights(self.digest, {})


@dataclass(frozen=True)
class FakeCopy:
    bytes: int
    used: float


@dataclass
class FakeSource:
    """Knows every digest but those in `absent`. sizes: bytes as thought. gates: hold fetches back."""

    absent: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    gates: dict[str, threading.Event] = field(default_factory=dict)
    fits: list[tuple[str, bool]] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    on_disk: dict[str, FakeCopy] = field(default_factory=dict)

    def fit(self, digest: str, *, force: bool) -> FakeFit:
        self.fits.append((digest, force))
        if digest in self.gates:
            self.gates[digest].wait(FOREVER_S)
        if digest in self.absent:
            raise NotInStore(digest)
        self.on_disk[digest] = FakeCopy(2 * SIZE, 1.0)
        return FakeFit(digest, self.sizes.get(digest, SIZE), self)

    def forget(self, digest: str) -> None:
        self.forgotten.append(digest)
        self.on_disk.pop(digest, None)

    def copies(self) -> dict[str, FakeCopy]:
        return dict(self.on_disk)


class Rig:
    """room: how many adapters of SIZE the budget takes."""

    def __init__(self, room: int = 2, *, patience_s: float = FOREVER_S) -> None:
        self.engine, self.source = FakeEngine(), FakeSource()
        self.residency = Residency(self.engine, self.source, budget=room * SIZE, patience_s=patience_s)

    async def use(self, *digests: str) -> None:
        """A short request on each, one after another."""
        for digest in digests:
            self.residency.release(await self.residency.acquire(digest))

    async def soon(self, digest: str) -> "asyncio.Task[Pin]":
        """A task that acquires, started and run as far as it gets at once."""
        task = asyncio.create_task(self.residency.acquire(digest))
        await self.settle()
        return task

    async def settle(self) -> None:
        """Let everything that can happen now happen."""
        for _ in range(20):
            await asyncio.sleep(0.001)
        self.residency.check_integrity()

    def states(self) -> dict[str, str]:
        return {row.digest: row.state for row in self.residency.snapshot()}
