"""Who gets memory when all of it is in use."""

import asyncio

import pytest

from lora.errors import ResidencyClosed
from tests.unit.lora.fakes import Rig


async def test_those_who_wait_for_memory_are_served_first_come_first() -> None:
    r = Rig(room=1)
    pin = await r.residency.acquire("a")
    waiting = [await r.soon(digest) for digest in ("c", "b", "d")]
    assert not any(task.done() for task in waiting)
    for task in waiting:
        r.residency.release(pin)
        pin = await task
        await r.settle()
    assert r.engine.adds == ["a", "c", "b", "d"]


async def test_endless_traffic_on_one_adapter_yields_to_another() -> None:
    """Room for one, always at least one request on "a": "b" still gets its turn, and "a" gets it back."""
    r = Rig(room=1, patience_s=0.01)
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


async def test_an_endless_stream_does_not_hold_the_line_while_another_adapter_drains() -> None:
    r = Rig(room=2, patience_s=0.005)
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


async def test_a_closed_adapter_opens_again_when_nobody_waits() -> None:
    r = Rig(room=1, patience_s=0.005)
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


async def test_close_refuses_those_who_wait_and_those_who_come() -> None:
    r = Rig(room=1)
    pin = await r.residency.acquire("a")
    waiting = await r.soon("b")
    unloading = asyncio.create_task(r.residency.unload("a"))
    await r.settle()
    await r.residency.close()
    for call in (waiting, unloading, r.residency.acquire("c"), r.residency.unload("c")):
        with pytest.raises(ResidencyClosed):
            await call
    r.residency.release(pin)
