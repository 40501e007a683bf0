"""Unloading frees what was loaded, waits for those who use it and for nobody else."""

import asyncio
from collections.abc import Callable
from typing import Any

SIZE = 64  # bytes of each fake adapter


async def test_unload_frees_everything_and_reports_the_bytes(rig: Callable[..., Any]) -> None:
    r = rig()
    r.residency.release(await r.residency.acquire("a"))
    assert await r.residency.unload("a") == 2 * SIZE
    assert r.residency.snapshot() == []
    assert r.engine.loaded == set()
    assert r.loader.forgotten == ["a"]


async def test_unload_of_an_absent_or_host_only_adapter(rig: Callable[..., Any]) -> None:
    r = rig(num_slots=1)
    assert await r.residency.unload("never") == 0
    for digest in ("a", "b"):
        r.residency.release(await r.residency.acquire(digest))
    assert await r.residency.unload("a") == SIZE
    assert r.states() == {"b": "ready"}


async def test_unload_waits_for_the_last_pin_and_holds_up_nobody(rig: Callable[..., Any]) -> None:
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


async def test_two_unloads_report_the_bytes_once(rig: Callable[..., Any]) -> None:
    r = rig()
    pin = await r.residency.acquire("a")
    calls = [asyncio.create_task(r.residency.unload("a")) for _ in range(2)]
    await r.settle()
    r.residency.release(pin)
    assert sorted(await asyncio.gather(*calls)) == [0, 2 * SIZE]


async def test_an_adapter_asked_for_while_it_is_unloaded_is_loaded_again(rig: Callable[..., Any]) -> None:
    r = rig()
    r.residency.release(await r.residency.acquire("a"))
    unloading = asyncio.create_task(r.residency.unload("a"))
    await asyncio.sleep(0)
    pin = await r.residency.acquire("a")
    assert await unloading > 0
    assert r.engine.loads == ["a", "a"]
    r.residency.release(pin)


async def test_unload_during_the_load_frees_it_after_use(rig: Callable[..., Any]) -> None:
    r = rig()
    loading = asyncio.create_task(r.residency.acquire("a"))
    await asyncio.sleep(0)
    unloading = asyncio.create_task(r.residency.unload("a"))
    r.residency.release(await loading)
    assert await unloading == 2 * SIZE
    assert r.residency.snapshot() == []


async def test_fifty_loads_and_unloads_leave_nothing(rig: Callable[..., Any]) -> None:
    r = rig(num_slots=2, host=2)
    for number in range(50):
        r.residency.release(await r.residency.acquire(f"a{number}"))
        r.residency.check_integrity()
        await r.residency.unload(f"a{number}")
    assert r.residency.snapshot() == []
    assert r.engine.loaded == set()
