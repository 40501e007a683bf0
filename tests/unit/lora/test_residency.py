"""Loading on demand, sharing one load, and who gives way to whom."""

import asyncio

import pytest

from lora.errors import AdapterOverBudget
from tests.unit.lora.fakes import SIZE, Rig


async def test_acquire_loads_once_and_holds() -> None:
    r = Rig()
    first, second = await r.residency.acquire("a"), await r.residency.acquire("a")
    assert (first.digest, first.nbytes) == ("a", SIZE)
    assert r.source.fits == [("a", False)]
    row = r.residency.row("a")
    assert row is not None
    assert (row.state, row.slot, row.pins, row.bytes) == ("ready", 1, 2, SIZE)
    r.residency.release(first)
    r.residency.release(second)
    assert [row.pins for row in r.residency.snapshot()] == [0]


async def test_eight_requests_at_once_share_one_fetch_and_one_preparation() -> None:
    r = Rig()
    pins = await asyncio.gather(*(r.residency.acquire("a") for _ in range(8)))
    assert (r.source.fits, r.source.reads, r.engine.adds) == ([("a", False)], ["a"], ["a"])
    assert r.residency.snapshot()[0].pins == len({id(pin) for pin in pins}) == 8


async def test_releasing_twice_counts_once() -> None:
    r = Rig()
    first, second = await r.residency.acquire("a"), await r.residency.acquire("a")
    r.residency.release(first)
    r.residency.release(first)
    assert r.residency.snapshot()[0].pins == 1
    r.residency.release(second)


async def test_force_reaches_the_source() -> None:
    r = Rig()
    await r.residency.acquire("a", force=True)
    assert r.source.fits == [("a", True)]


async def test_the_least_recently_used_gives_way_and_stays_on_disk() -> None:
    r = Rig()
    await r.use("a", "b", "a")
    await r.residency.acquire("c")
    assert r.states() == {"a": "ready", "c": "ready"}
    listed = {row.digest: (row.state, row.bytes) for row in await r.residency.listing()}
    assert listed == {"a": ("ready", SIZE), "c": ("ready", SIZE), "b": ("disk", 2 * SIZE)}


async def test_what_is_in_use_never_gives_way() -> None:
    r = Rig()
    pin = await r.residency.acquire("a")
    await r.use("b", "c", "d")
    assert r.states() == {"a": "ready", "d": "ready"}
    r.residency.release(pin)


async def test_a_large_adapter_takes_the_room_of_several_small_ones() -> None:
    r = Rig(room=3)
    r.source.sizes["large"] = r.engine.sizes["large"] = 2 * SIZE
    await r.use("a", "b", "c", "large")
    assert r.states() == {"c": "ready", "large": "ready"}
    assert r.engine.bytes == 3 * SIZE


async def test_an_adapter_that_turns_out_larger_waits_for_the_room_it_needs() -> None:
    r = Rig(room=3)
    r.engine.sizes["large"] = 2 * SIZE
    stream, other = await r.residency.acquire("a"), await r.residency.acquire("b")
    task = await r.soon("large")
    assert (r.states()["large"], r.engine.bytes) == ("waiting", 2 * SIZE)
    r.residency.release(other)
    assert (await task).nbytes == 2 * SIZE
    assert r.states() == {"a": "ready", "large": "ready"}
    r.residency.release(stream)


@pytest.mark.parametrize("thought", [SIZE, 3 * SIZE])
async def test_an_adapter_over_the_whole_budget_is_refused_with_both_numbers(thought: int) -> None:
    r = Rig(room=2)
    r.source.sizes["huge"], r.engine.sizes["huge"] = thought, 3 * SIZE
    stream = await r.residency.acquire("a")
    with pytest.raises(AdapterOverBudget, match=f"takes {3 * SIZE} bytes in memory, allowed: {2 * SIZE}"):
        await r.residency.acquire("huge")
    assert r.states() == {"a": "ready"}
    r.residency.release(stream)


async def test_a_listing_tells_the_slot_only_of_those_that_have_one() -> None:
    r = Rig()
    await r.use("a", "b")
    assert {row.digest: row.slot for row in r.residency.snapshot()} == {"a": 1, "b": None}
    assert r.residency.row("c") is None
