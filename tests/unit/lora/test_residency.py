"""Loading on demand, sharing one load, pins and eviction."""

import asyncio
from collections.abc import Callable
from typing import Any

SIZE = 64  # bytes of each fake adapter


async def test_acquire_loads_once_and_pins(rig: Callable[..., Any]) -> None:
    r = rig()
    first = await r.residency.acquire("a")
    second = await r.residency.acquire("a")
    assert (first.digest, first.slot) == ("a", 1)
    assert r.loader.loads == [("a", False)]
    (row,) = r.residency.snapshot()
    assert (row.state, row.pins, row.device_bytes, row.host_bytes) == ("ready", 2, SIZE, SIZE)
    r.residency.release(first)
    r.residency.release(second)
    assert r.residency.snapshot()[0].pins == 0


async def test_eight_requests_at_once_share_one_load(rig: Callable[..., Any]) -> None:
    r = rig()
    pins = await asyncio.gather(*(r.residency.acquire("a") for _ in range(8)))
    assert r.loader.loads == [("a", False)]
    assert r.engine.loads == ["a"]
    assert r.residency.snapshot()[0].pins == len({id(pin) for pin in pins}) == 8


async def test_releasing_twice_counts_once(rig: Callable[..., Any]) -> None:
    r = rig()
    first, second = await r.residency.acquire("a"), await r.residency.acquire("a")
    r.residency.release(first)
    r.residency.release(first)
    assert r.residency.snapshot()[0].pins == 1
    r.residency.release(second)


async def test_force_reaches_the_loader(rig: Callable[..., Any]) -> None:
    r = rig()
    await r.residency.acquire("a", force=True)
    assert r.loader.loads == [("a", True)]


async def test_the_least_recently_used_idle_adapter_gives_way(rig: Callable[..., Any]) -> None:
    r = rig()
    for digest in ("a", "b", "a"):
        r.residency.release(await r.residency.acquire(digest))
    await r.residency.acquire("c")
    assert r.states() == {"a": "ready", "c": "ready", "b": "host"}


async def test_a_pinned_adapter_never_gives_way(rig: Callable[..., Any]) -> None:
    r = rig()
    pin = await r.residency.acquire("a")
    for digest in ("b", "c", "d"):
        r.residency.release(await r.residency.acquire(digest))
        assert r.states()["a"] == "ready"
    r.residency.release(pin)


async def test_an_adapter_comes_back_from_host_memory_without_the_loader(rig: Callable[..., Any]) -> None:
    r = rig(num_slots=1)
    for digest in ("a", "b", "a"):
        r.residency.release(await r.residency.acquire(digest))
    assert r.loader.loads == [("a", False), ("b", False)]
    assert r.engine.loads == ["a", "b", "a"]


async def test_host_memory_keeps_within_its_budget(rig: Callable[..., Any]) -> None:
    r = rig(num_slots=1, host=2)
    for digest in ("a", "b", "c", "a"):
        r.residency.release(await r.residency.acquire(digest))
        r.residency.check_integrity()
    assert [digest for digest, _ in r.loader.loads] == ["a", "b", "c", "a"]
    assert sum(row.host_bytes for row in r.residency.snapshot()) == 2 * SIZE


async def test_weights_over_the_whole_budget_are_served_but_not_kept(rig: Callable[..., Any]) -> None:
    r = rig(host=0)
    await r.residency.acquire("a")
    assert r.residency.snapshot()[0].host_bytes == 0
