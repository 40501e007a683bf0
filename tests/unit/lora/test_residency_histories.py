"""Random histories of everything that can happen to adapters keep the books, and end where they began."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.adapter_weights import AdapterWeights
from engine.errors import AdapterInUse
from lora.errors import AdapterOverBudget, NotInStore, PinsFillBudget
from lora.residency import Residency
from lora.residents import Pin
from tests.unit.lora.fakes import SIZE, FakeEngine, FakeFit, FakePrepared, FakeSource

DIGESTS = "abcdef"
ODD = {"d": (SIZE, 2 * SIZE), "e": (2 * SIZE, SIZE), "f": (9 * SIZE, 9 * SIZE)}
"""Bytes as thought and as prepared, where they are not SIZE both."""


class Engine(FakeEngine):
    """Slow by a few turns of the loop; refuses every seventh removal and every eleventh preparation."""

    calls = 0

    def prepare_adapter(self, weights: AdapterWeights) -> FakePrepared:
        self.calls += 1
        if self.calls % 11 == 0:
            raise MemoryError(weights.digest)
        return super().prepare_adapter(weights)

    async def add_adapter(self, prepared: Any) -> None:
        assert prepared.digest not in self.added
        for _ in range(ord(prepared.digest) % 3):
            await asyncio.sleep(0)
        await super().add_adapter(prepared)

    async def remove_adapter(self, digest: str) -> int:
        self.calls += 1
        if self.calls % 7 == 0:
            raise AdapterInUse(digest, 1)
        return await super().remove_adapter(digest)


class Source(FakeSource):
    """Every fifth fetch fails."""

    def fit(self, digest: str, *, force: bool) -> FakeFit:
        if len(self.fits) % 5 == 4:
            self.fits.append((digest, force))
            raise NotInStore(digest)
        return super().fit(digest, force=force)


class History:
    """Plays steps on a residency and checks after each one."""

    def __init__(self, room: int) -> None:
        self.engine, self.source = Engine(), Source()
        self.source.sizes = {digest: thought for digest, (thought, _) in ODD.items()}
        self.engine.sizes = {digest: real for digest, (_, real) in ODD.items()}
        self.budget = room * SIZE
        self.residency = Residency(self.engine, self.source, budget=self.budget, patience_s=0.002)
        self.requests: list[asyncio.Task[Pin]] = []
        self.pins: list[Pin] = []
        self.admin: list[asyncio.Task[Any]] = []
        self.live = DIGESTS[0]

    async def play(self, steps: list[tuple[str, int]]) -> None:
        for kind, number in steps:
            getattr(self, kind)(number)
            self.check()
            await asyncio.sleep(0.001 if kind == "pause" else 0)
            self.check()
        await self.finish()

    def request(self, number: int) -> None:
        wanted = self.residency.acquire(DIGESTS[number % 6], stay=number % 4 == 0)
        self.requests.append(asyncio.create_task(wanted))

    def release(self, number: int) -> None:
        self.collect()
        if self.pins:
            self.residency.release(self.pins.pop(number % len(self.pins)))

    def cancel(self, number: int) -> None:
        if self.requests:
            self.requests[number % len(self.requests)].cancel()

    def unload(self, number: int) -> None:
        self.admin.append(asyncio.create_task(self.residency.unload(DIGESTS[number % 6])))

    def replace(self, number: int) -> None:
        """One name gets another version: requests go to the new one, the old one drains."""
        old, self.live = self.live, DIGESTS[number % 6]
        self.request(DIGESTS.index(self.live))
        if old != self.live:
            self.unload(DIGESTS.index(old))

    def pin(self, number: int) -> None:
        self.admin.append(asyncio.create_task(self.residency.pin(DIGESTS[number % 6])))

    def unpin(self, number: int) -> None:
        self.residency.unpin(DIGESTS[number % 6])

    def prefetch(self, number: int) -> None:
        self.residency.prefetch(DIGESTS[number % 6])

    def pause(self, number: int) -> None:
        self.collect()

    def collect(self) -> None:
        """Take the pins of the requests that have got one."""
        done = [task for task in self.requests if task.done()]
        self.requests = [task for task in self.requests if not task.done()]
        self.pins += [task.result() for task in done if not task.cancelled() and task.exception() is None]

    def check(self) -> None:
        self.residency.check_integrity()
        rows = {row.digest: row for row in self.residency.snapshot()}
        for digest in {pin.digest for pin in self.pins}:
            assert digest in self.engine.added
            assert rows[digest].pins >= sum(pin.digest == digest for pin in self.pins)
        assert all(digest in self.engine.added for digest, row in rows.items() if row.pinned)
        assert self.engine.bytes <= self.budget
        assert set(self.engine.added) <= set(rows)

    async def finish(self) -> None:
        """Every request gets its pin or its error; then unloading everything leaves nothing."""
        while self.requests or self.pins:
            self.collect()
            while self.pins:
                self.residency.release(self.pins.pop())
                self.check()
            await asyncio.sleep(0.0005)
        outcomes = await asyncio.gather(*self.admin, return_exceptions=True)
        failures = [item for item in outcomes if isinstance(item, BaseException)]
        assert all(isinstance(item, ALLOWED) for item in failures), failures
        await asyncio.gather(*(self.residency.unload(digest) for digest in DIGESTS))
        self.check()
        assert await self.residency.listing() == []
        assert self.engine.bytes == 0
        await self.residency.close()


ALLOWED = (NotInStore, MemoryError, PinsFillBudget, AdapterOverBudget)
KINDS = ["request"] * 4 + ["release"] * 3
KINDS += ["cancel", "unload", "replace", "pin", "unpin", "prefetch", "pause"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 59)), max_size=60)


@settings(max_examples=150)
@given(room=st.integers(0, 5), steps=STEPS)
def test_random_histories_keep_the_books(room: int, steps: list[tuple[str, int]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(30):
            await History(room).play(steps)

    asyncio.run(run())
