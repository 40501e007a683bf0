"""Random histories of requests, releases, unloads and cancellations keep the books."""

import asyncio
from dataclasses import dataclass, field

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.adapter_weights import AdapterWeights, LoraPair
from engine.errors import AdapterInUse
from engine.fake_runner import FakeWeights
from engine.ports import PreparedAdapter
from lora.errors import NotInStore
from lora.residency import Residency
from lora.residents import Pin

DIGESTS = "abcde"
BROKEN = "x"


@dataclass
class Engine:
    """Slots that are slow by a few turns of the loop and refuse every seventh unload."""

    num_slots: int
    loaded: set[str] = field(default_factory=set)
    unloads: int = 0

    def prepare_adapter(self, weights: AdapterWeights) -> FakeWeights:
        return FakeWeights(weights.digest)

    async def add_adapter(self, prepared: PreparedAdapter) -> None:
        for _ in range(ord(prepared.digest) % 3):
            await asyncio.sleep(0)
        assert len(self.loaded) < self.num_slots
        assert prepared.digest not in self.loaded
        self.loaded.add(prepared.digest)

    async def remove_adapter(self, digest: str) -> int:
        await asyncio.sleep(0)
        self.unloads += 1
        if self.unloads % 7 == 0:
            raise AdapterInUse(digest, 1)
        self.loaded.remove(digest)
        return 64


class Loader:
    def load(self, digest: str, *, force: bool) -> AdapterWeights:
        if digest == BROKEN:
            raise NotInStore(digest)
        return AdapterWeights(digest, {"m": LoraPair(torch.zeros(1, 8), torch.zeros(8, 1), 1.0)})

    def forget(self, digest: str) -> None:
        pass


class History:
    """Plays steps on a residency and checks after each one."""

    def __init__(self, num_slots: int, host_adapters: int) -> None:
        self.engine = Engine(num_slots)
        self.residency = Residency(
            self.engine, Loader(), num_slots=num_slots, host_bytes=64 * host_adapters, patience_s=0.002
        )
        self.tasks: list[asyncio.Task[Pin]] = []
        self.pins: list[Pin] = []
        self.unloading: list[asyncio.Task[int]] = []

    async def play(self, steps: list[tuple[str, int]]) -> None:
        for kind, number in steps:
            getattr(self, kind)(number)
            self.check()
            await asyncio.sleep(0.001 if kind == "pause" else 0)
            self.check()
        await self.finish()

    def acquire(self, number: int) -> None:
        digest = (DIGESTS + BROKEN)[number % 6]
        self.tasks.append(asyncio.create_task(self.residency.acquire(digest)))

    def release(self, number: int) -> None:
        self.collect()
        if self.pins:
            self.residency.release(self.pins.pop(number % len(self.pins)))

    def cancel(self, number: int) -> None:
        if self.tasks:
            self.tasks[number % len(self.tasks)].cancel()

    def unload(self, number: int) -> None:
        self.unloading.append(asyncio.create_task(self.residency.unload(DIGESTS[number % 5])))

    def pause(self, number: int) -> None:
        self.collect()

    def collect(self) -> None:
        """Take the pins of the requests that have got one."""
        done = [task for task in self.tasks if task.done()]
        self.tasks = [task for task in self.tasks if not task.done()]
        self.pins += [task.result() for task in done if not task.cancelled() and task.exception() is None]

    def check(self) -> None:
        self.residency.check_integrity()
        pinned = {row.digest: row.pins for row in self.residency.snapshot() if row.pins}
        for pin in self.pins:
            assert pin.digest in self.engine.loaded
            pinned[pin.digest] -= 1
        assert all(count >= 0 for count in pinned.values())
        assert len(self.engine.loaded) <= self.engine.num_slots

    async def finish(self) -> None:
        """Every request gets its pin or its error, and unloading everything leaves nothing."""
        while self.tasks or self.pins:
            self.collect()
            while self.pins:
                self.residency.release(self.pins.pop())
                self.check()
            await asyncio.sleep(0.0005)
        await asyncio.gather(*self.unloading)
        await asyncio.gather(*(self.residency.unload(digest) for digest in DIGESTS))
        self.check()
        assert self.residency.snapshot() == []
        assert self.engine.loaded == set()
        await self.residency.close()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["acquire", "acquire", "acquire", "release", "release", "cancel", "unload", "pause"]),
        st.integers(0, 59),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(num_slots=st.integers(1, 3), host_adapters=st.integers(0, 3), steps=STEPS)
def test_random_histories_keep_the_books(
    num_slots: int, host_adapters: int, steps: list[tuple[str, int]]
) -> None:
    async def run() -> None:
        async with asyncio.timeout(30):
            await History(num_slots, host_adapters).play(steps)

    asyncio.run(run())
