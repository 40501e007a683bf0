"""Loading on demand, sharing one load, eviction, unloading, failure and cancellation."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from engine.errors import AdapterInUse, NoFreeSlot, UnknownAdapter
from engine.lora import AdapterWeights, LoraPair
from lora.errors import NotInStore, ResidencyClosed
from lora.residency import Residency

SIZE = 64  # bytes of each fake adapter
FOREVER_S = 60.0


def _weights(digest: str) -> AdapterWeights:
    return AdapterWeights(digest, {"m": LoraPair(torch.zeros(1, 8), torch.zeros(8, 1), 1.0)})


@dataclass
class FakeEngine:
    """Slots without a model. `busy`: digests it will not unload yet. `fail`: error of the next load."""

    num_slots: int
    loaded: dict[str, int] = field(default_factory=dict)
    loads: list[str] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    fail: Exception | None = None
    refusals: int = 0

    async def load_adapter(self, weights: AdapterWeights) -> int:
        await asyncio.sleep(0)
        if self.fail is not None:
            error, self.fail = self.fail, None
            raise error
        free = set(range(1, self.num_slots + 1)) - set(self.loaded.values())
        if not free:
            raise NoFreeSlot(self.num_slots)
        self.loads.append(weights.digest)
        self.loaded[weights.digest] = min(free)
        return self.loaded[weights.digest]

    async def unload_adapter(self, digest: str) -> int:
        await asyncio.sleep(0)
        if digest in self.busy:
            self.refusals += 1
            raise AdapterInUse(digest, 1)
        if digest not in self.loaded:
            raise UnknownAdapter(digest, self.loaded)
        del self.loaded[digest]
        return SIZE


@dataclass
class FakeLoader:
    """Counts loads; knows every digest but those in `absent`."""

    absent: set[str] = field(default_factory=set)
    loads: list[tuple[str, bool]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def load(self, digest: str, *, force: bool) -> AdapterWeights:
        self.loads.append((digest, force))
        if digest in self.absent:
            raise NotInStore(digest)
        return _weights(digest)

    def forget(self, digest: str) -> None:
        self.forgotten.append(digest)


@dataclass
class Rig:
    engine: FakeEngine
    loader: FakeLoader
    residency: Residency

    async def soon(self, digest: str) -> "asyncio.Task[Any]":
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


@pytest.fixture
def rig() -> Callable[..., Rig]:
    def make(num_slots: int = 2, host: int = 4, patience_s: float = FOREVER_S) -> Rig:
        engine, loader = FakeEngine(num_slots), FakeLoader()
        residency = Residency(
            engine, loader, num_slots=num_slots, host_bytes=host * SIZE, patience_s=patience_s
        )
        return Rig(engine, loader, residency)

    return make


async def test_acquire_loads_once_and_pins(rig: Callable[..., Rig]) -> None:
    r = rig()
    first = await r.residency.acquire("a")
    second = await r.residency.acquire("a")
    assert (first.digest, first.slot) == ("a", r.engine.loaded["a"])
    assert r.loader.loads == [("a", False)]
    (row,) = r.residency.snapshot()
    assert (row.state, row.pins, row.device_bytes, row.host_bytes) == ("ready", 2, SIZE, SIZE)
    r.residency.release(first)
    r.residency.release(second)
    assert r.residency.snapshot()[0].pins == 0


async def test_eight_requests_at_once_share_one_load(rig: Callable[..., Rig]) -> None:
    r = rig()
    pins = await asyncio.gather(*(r.residency.acquire("a") for _ in range(8)))
    assert r.loader.loads == [("a", False)]
    assert r.engine.loads == ["a"]
    assert r.residency.snapshot()[0].pins == len({id(pin) for pin in pins}) == 8


async def test_releasing_twice_counts_once(rig: Callable[..., Rig]) -> None:
    r = rig()
    first, second = await r.residency.acquire("a"), await r.residency.acquire("a")
    r.residency.release(first)
    r.residency.release(first)
    assert r.residency.snapshot()[0].pins == 1
    r.residency.release(second)


async def test_force_reaches_the_loader(rig: Callable[..., Rig]) -> None:
    r = rig()
    await r.residency.acquire("a", force=True)
    assert r.loader.loads == [("a", True)]


async def test_the_least_recently_used_idle_adapter_gives_way(rig: Callable[..., Rig]) -> None:
    r = rig()
    for digest in ("a", "b", "a"):
        r.residency.release(await r.residency.acquire(digest))
    await r.residency.acquire("c")
    assert r.states() == {"a": "ready", "c": "ready", "b": "host"}


async def test_a_pinned_adapter_never_gives_way(rig: Callable[..., Rig]) -> None:
    r = rig()
    pin = await r.residency.acquire("a")
    for digest in ("b", "c", "d"):
        r.residency.release(await r.residency.acquire(digest))
        assert r.states()["a"] == "ready"
    r.residency.release(pin)


async def test_an_adapter_comes_back_from_host_memory_without_the_loader(rig: Callable[..., Rig]) -> None:
    r = rig(num_slots=1)
    for digest in ("a", "b", "a"):
        r.residency.release(await r.residency.acquire(digest))
    assert r.loader.loads == [("a", False), ("b", False)]
    assert r.engine.loads == ["a", "b", "a"]


async def test_host_memory_keeps_within_its_budget(rig: Callable[..., Rig]) -> None:
    r = rig(num_slots=1, host=2)
    for digest in ("a", "b", "c", "a"):
        r.residency.release(await r.residency.acquire(digest))
        r.residency.check_integrity()
    assert [digest for digest, _ in r.loader.loads] == ["a", "b", "c", "a"]
    assert sum(row.host_bytes for row in r.residency.snapshot()) == 2 * SIZE


async def test_weights_over_the_whole_budget_are_served_but_not_kept(rig: Callable[..., Rig]) -> None:
    r = rig(host=0)
    await r.residency.acquire("a")
    assert r.residency.snapshot()[0].host_bytes == 0


async def test_those_who_wait_for_a_slot_are_served_first_come_first(rig: Callable[..., Rig]) -> None:
    r = rig(num_slots=1)
    pin = await r.residency.acquire("a")
    waiting = [await r.soon(digest) for digest in ("c", "b", "d")]
    assert not any(task.done() for task in waiting)
    for task in waiting:
        r.residency.release(pin)
        pin = await task
        await r.settle()
    assert r.engine.loads == ["a", "c", "b", "d"]


async def test_endless_traffic_on_one_adapter_yields_to_another(rig: Callable[..., Rig]) -> None:
    """One slot, always at least one request on "a": "b" still gets its turn, and "a" gets it back."""
    r = rig(num_slots=1, patience_s=0.01)
    order: list[str] = []

    async def use(digest: str, number: int) -> None:
        pin = await r.residency.acquire(digest)
        order.append(digest)
        await asyncio.sleep(0.004)
        r.residency.release(pin)

    async def stream(digest: str) -> None:
        running: set[asyncio.Task[None]] = set()
        for number in range(60):
            running.add(asyncio.create_task(use(digest, number)))
            await asyncio.sleep(0.001)
        await asyncio.gather(*running)

    traffic = asyncio.create_task(stream("a"))
    await asyncio.sleep(0.005)
    await use("b", 0)
    await traffic
    assert "b" in order[:-1]
    assert order.count("a") == 60
    r.residency.check_integrity()


async def test_an_endless_stream_does_not_hold_the_line_while_another_slot_drains(
    rig: Callable[..., Rig],
) -> None:
    r = rig(num_slots=2, patience_s=0.005)
    endless = await r.residency.acquire("endless")
    short = [await r.residency.acquire("short") for _ in range(2)]
    task = await r.soon("c")
    await asyncio.sleep(0.02)
    late = await r.soon("short")
    assert not late.done()
    for pin in short:
        r.residency.release(pin)
    assert (await task).digest == "c"
    r.residency.release(task.result())
    assert (await late).digest == "short"
    assert r.states()["endless"] == "ready"
    r.residency.release(endless)


async def test_a_closed_adapter_opens_again_when_nobody_waits(rig: Callable[..., Rig]) -> None:
    r = rig(num_slots=1, patience_s=0.005)
    pin = await r.residency.acquire("a")
    impatient = await r.soon("b")
    await asyncio.sleep(0.02)
    queued = await r.soon("a")
    assert not queued.done()
    impatient.cancel()
    await r.settle()
    assert queued.done()
    for held in (pin, queued.result()):
        r.residency.release(held)


async def test_unload_frees_everything_and_reports_the_bytes(rig: Callable[..., Rig]) -> None:
    r = rig()
    r.residency.release(await r.residency.acquire("a"))
    assert await r.residency.unload("a") == 2 * SIZE
    assert r.residency.snapshot() == []
    assert r.engine.loaded == {}
    assert r.loader.forgotten == ["a"]


async def test_unload_of_an_absent_or_host_only_adapter(rig: Callable[..., Rig]) -> None:
    r = rig(num_slots=1)
    assert await r.residency.unload("never") == 0
    for digest in ("a", "b"):
        r.residency.release(await r.residency.acquire(digest))
    assert await r.residency.unload("a") == SIZE
    assert r.states() == {"b": "ready"}


async def test_unload_waits_for_the_last_pin_and_holds_up_nobody(rig: Callable[..., Rig]) -> None:
    r = rig(num_slots=2)
    stream = await r.residency.acquire("a")
    unloading = asyncio.create_task(r.residency.unload("a"))
    await r.settle()
    for digest in ("b", "c"):
        r.residency.release(await r.residency.acquire(digest))
    assert await r.residency.unload("b") > 0
    assert not unloading.done()
    assert "a" in r.engine.loaded
    r.residency.release(stream)
    assert await unloading == 2 * SIZE
    assert "a" not in r.engine.loaded


async def test_two_unloads_report_the_bytes_once(rig: Callable[..., Rig]) -> None:
    r = rig()
    pin = await r.residency.acquire("a")
    calls = [asyncio.create_task(r.residency.unload("a")) for _ in range(2)]
    await r.settle()
    r.residency.release(pin)
    assert sorted(await asyncio.gather(*calls)) == [0, 2 * SIZE]


async def test_an_adapter_asked_for_while_it_is_unloaded_is_loaded_again(rig: Callable[..., Rig]) -> None:
    r = rig()
    r.residency.release(await r.residency.acquire("a"))
    unloading = asyncio.create_task(r.residency.unload("a"))
    await asyncio.sleep(0)
    pin = await r.residency.acquire("a")
    assert await unloading > 0
    assert r.engine.loads == ["a", "a"]
    r.residency.release(pin)


async def test_unload_during_the_load_frees_it_after_use(rig: Callable[..., Rig]) -> None:
    r = rig()
    loading = asyncio.create_task(r.residency.acquire("a"))
    await asyncio.sleep(0)
    unloading = asyncio.create_task(r.residency.unload("a"))
    r.residency.release(await loading)
    assert await unloading == 2 * SIZE
    assert r.residency.snapshot() == []


async def test_fifty_loads_and_unloads_leave_nothing(rig: Callable[..., Rig]) -> None:
    r = rig(num_slots=2, host=2)
    for number in range(50):
        r.residency.release(await r.residency.acquire(f"a{number}"))
        r.residency.check_integrity()
        await r.residency.unload(f"a{number}")
    assert r.residency.snapshot() == []
    assert r.engine.loaded == {}


async def test_a_failed_load_reaches_its_own_requests_only_and_is_not_remembered(
    rig: Callable[..., Rig],
) -> None:
    r = rig()
    r.loader.absent.add("bad")
    results = await asyncio.gather(
        *(r.residency.acquire(digest) for digest in ("bad", "good", "bad")), return_exceptions=True
    )
    assert [type(result).__name__ for result in results] == ["NotInStore", "Pin", "NotInStore"]
    assert r.states() == {"good": "ready"}
    r.loader.absent.clear()
    assert (await r.residency.acquire("bad")).digest == "bad"


async def test_a_failed_install_gives_the_slot_back(rig: Callable[..., Rig]) -> None:
    r = rig(num_slots=1)
    r.engine.fail = RuntimeError("no memory")
    with pytest.raises(RuntimeError, match="no memory"):
        await r.residency.acquire("a")
    r.residency.check_integrity()
    assert (await r.residency.acquire("b")).digest == "b"


async def test_a_slot_the_engine_still_uses_is_asked_for_again(rig: Callable[..., Rig]) -> None:
    r = rig(num_slots=1)
    r.residency.release(await r.residency.acquire("a"))
    r.engine.busy.add("a")
    task = await r.soon("b")
    assert not task.done()
    assert r.engine.refusals >= 1
    r.engine.busy.clear()
    assert (await task).digest == "b"


async def test_an_engine_that_has_lost_an_adapter_counts_as_empty(rig: Callable[..., Rig]) -> None:
    r = rig(num_slots=1)
    r.residency.release(await r.residency.acquire("a"))
    r.engine.loaded.clear()
    assert (await r.residency.acquire("b")).digest == "b"


async def test_a_failing_eviction_is_told_to_the_first_in_line(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    r = rig(num_slots=1)
    r.residency.release(await r.residency.acquire("a"))

    async def broken(digest: str) -> int:
        raise RuntimeError("device lost")

    monkeypatch.setattr(r.engine, "unload_adapter", broken)
    for call in (r.residency.acquire("b"), r.residency.unload("a")):
        with pytest.raises(RuntimeError, match="device lost"):
            await call
        await r.settle()
    assert r.states() == {"a": "ready", "b": "host"}


async def test_cancelling_one_of_two_leaves_the_other_its_load(rig: Callable[..., Rig]) -> None:
    r = rig()
    first, second = (asyncio.create_task(r.residency.acquire("a")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).digest == "a"
    assert r.residency.snapshot()[0].pins == 1


async def test_cancelling_everybody_in_line_takes_the_adapter_out_of_it(rig: Callable[..., Rig]) -> None:
    r = rig(num_slots=1)
    pin = await r.residency.acquire("a")
    gone, stays = await r.soon("b"), await r.soon("c")
    gone.cancel()
    await r.settle()
    assert r.states()["b"] == "host"
    r.residency.release(pin)
    assert (await stays).digest == "c"
    assert r.engine.loads == ["a", "c"]


async def test_a_pin_granted_to_a_cancelled_request_is_given_back(rig: Callable[..., Rig]) -> None:
    r = rig(num_slots=1)
    pin = await r.residency.acquire("a")
    task = await r.soon("b")
    r.residency.release(pin)
    for _ in range(100):
        if any(row.pins for row in r.residency.snapshot()):
            break
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert r.residency.snapshot()[0].pins == 0


async def test_close_refuses_those_who_wait_and_those_who_come(rig: Callable[..., Rig]) -> None:
    r = rig(num_slots=1)
    pin = await r.residency.acquire("a")
    waiting = await r.soon("b")
    unloading = asyncio.create_task(r.residency.unload("a"))
    await r.settle()
    await r.residency.close()
    for call in (waiting, unloading, r.residency.acquire("c"), r.residency.unload("c")):
        with pytest.raises(ResidencyClosed):
            await call
    r.residency.release(pin)
