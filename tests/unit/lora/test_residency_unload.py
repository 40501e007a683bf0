"""Unloading frees memory and disk, waits for the last request, and holds up nobody."""

import asyncio
import threading

from tests.unit.lora.fakes import SIZE, Rig


async def test_unload_frees_memory_and_disk_and_reports_the_bytes() -> None:
    r = Rig()
    await r.use("a")
    assert await r.residency.unload("a") == SIZE
    assert await r.residency.listing() == []
    assert (r.engine.added, r.source.forgotten) == ({}, ["a"])


async def test_unload_of_what_is_not_in_memory_frees_the_disk() -> None:
    r = Rig(room=1)
    assert await r.residency.unload("never") == 0
    await r.use("a", "b")
    assert await r.residency.unload("a") == 0
    assert [(row.digest, row.state) for row in await r.residency.listing()] == [("b", "ready")]


async def test_unload_waits_for_the_last_request_and_holds_up_nobody() -> None:
    r = Rig()
    stream = await r.residency.acquire("a")
    unloading = asyncio.create_task(r.residency.unload("a"))
    await r.settle()
    assert r.states() == {"a": "draining"}
    await r.use("b", "c")
    assert await r.residency.unload("c") == SIZE
    assert not unloading.done()
    r.residency.release(stream)
    assert await unloading == SIZE
    assert r.engine.added == {}


async def test_an_unload_is_not_held_up_by_fetches_that_hang() -> None:
    r = Rig(room=9)
    await r.use("a")
    hanging = [f"h{number}" for number in range(9)]
    r.source.gates = {digest: threading.Event() for digest in hanging}
    tasks = [await r.soon(digest) for digest in hanging]
    assert await r.residency.unload("a") == SIZE
    for gate in r.source.gates.values():
        gate.set()
    await asyncio.gather(*tasks)


async def test_two_unloads_report_the_bytes_once() -> None:
    r = Rig()
    pin = await r.residency.acquire("a")
    calls = [asyncio.create_task(r.residency.unload("a")) for _ in range(2)]
    await r.settle()
    r.residency.release(pin)
    assert sorted(await asyncio.gather(*calls)) == [0, SIZE]


async def test_an_adapter_asked_for_while_it_leaves_is_loaded_again() -> None:
    r = Rig()
    await r.use("a")
    unloading = asyncio.create_task(r.residency.unload("a"))
    await asyncio.sleep(0)
    pin = await r.residency.acquire("a")
    assert await unloading == SIZE
    assert r.engine.adds == ["a", "a"]
    r.residency.release(pin)


async def test_a_new_load_calls_off_the_unload_that_still_waits() -> None:
    """Unloaded under one name and loaded under another, while a stream of the first still runs."""
    r = Rig()
    stream = await r.residency.acquire("a")
    unloading = asyncio.create_task(r.residency.unload("a"))
    await r.settle()
    r.residency.release(await r.residency.acquire("a", stay=True))
    assert await unloading == 0
    r.residency.release(stream)
    await r.settle()
    assert r.states() == {"a": "ready"}
    assert r.source.forgotten == []


async def test_unload_during_the_load_frees_it_after_use() -> None:
    r = Rig()
    loading = asyncio.create_task(r.residency.acquire("a"))
    await asyncio.sleep(0)
    unloading = asyncio.create_task(r.residency.unload("a"))
    r.residency.release(await loading)
    assert await unloading == SIZE
    assert r.residency.snapshot() == []


async def test_replacing_while_streams_run_keeps_two_versions_until_the_last_one_ends() -> None:
    r = Rig(room=3)
    stream = await r.residency.acquire("v1")
    for version in range(2, 52):
        fresh = await r.residency.acquire(f"v{version}", stay=True)
        if version > 2:
            assert await r.residency.unload(f"v{version - 1}") == SIZE
        else:
            unloading = asyncio.create_task(r.residency.unload("v1"))
        r.residency.release(fresh)
        assert set(r.engine.added) == {"v1", f"v{version}"}
        r.residency.check_integrity()
    r.residency.release(stream)
    assert await unloading == SIZE
    assert set(r.engine.added) == {"v51"}


async def test_fifty_fresh_names_and_fifty_times_one_name_leave_nothing() -> None:
    r = Rig()
    for number in range(100):
        digest = f"a{number}" if number < 50 else "same"
        await r.use(digest)
        assert r.engine.bytes <= 2 * SIZE
        assert await r.residency.unload(digest) == SIZE
        r.residency.check_integrity()
    assert await r.residency.listing() == []
    assert r.engine.bytes == 0
