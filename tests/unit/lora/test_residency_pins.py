"""What an admin has pinned stays; what is loaded ahead displaces nothing in use."""

import asyncio
import logging

import pytest

from lora.errors import AdapterOverBudget, NotInStore, PinsFillBudget, ResidencyClosed
from tests.unit.lora.fakes import SIZE, Rig


async def test_a_pinned_adapter_is_loaded_and_stays() -> None:
    r = Rig()
    await r.residency.pin("a")
    await r.use("b", "c", "d")
    assert r.states() == {"a": "ready", "d": "ready"}
    assert [row.pinned for row in r.residency.snapshot()] == [True, False]
    assert r.source.reads.count("a") == 1


async def test_unpinned_it_gives_way_like_any_other() -> None:
    r = Rig()
    await r.residency.pin("a")
    await r.residency.pin("a")
    r.residency.unpin("a")
    r.residency.unpin("nobody")
    await r.use("b", "c")
    assert r.states() == {"b": "ready", "c": "ready"}


async def test_pins_that_leave_room_for_nothing_else_are_refused_with_the_numbers() -> None:
    r = Rig(room=3)
    await r.residency.pin("a")
    await r.residency.pin("b")
    with pytest.raises(PinsFillBudget, match=f"takes {SIZE} bytes .* {2 * SIZE} are, of {3 * SIZE} for all"):
        await r.residency.pin("c")
    await r.use("d")
    assert r.states() == {"a": "ready", "b": "ready", "d": "ready"}


async def test_what_cannot_be_beside_the_pinned_is_refused_also_while_it_waits() -> None:
    r = Rig(room=4)
    r.source.sizes["large"] = r.engine.sizes["large"] = 3 * SIZE
    streams = [await r.residency.acquire(digest) for digest in "ab"]
    waiting = await r.soon("large")
    assert r.states()["large"] == "waiting"
    await r.residency.pin("a")
    await r.residency.pin("b")
    with pytest.raises(AdapterOverBudget, match=f"takes {3 * SIZE} bytes in memory, allowed: {2 * SIZE}"):
        await waiting
    with pytest.raises(AdapterOverBudget):
        await r.residency.acquire("large")
    for stream in streams:
        r.residency.release(stream)


async def test_a_pinned_adapter_is_never_closed_for_the_impatient() -> None:
    r = Rig(patience_s=0.005)
    await r.residency.pin("a")
    streams = [await r.residency.acquire(digest) for digest in "ab"]
    impatient = await r.soon("c")
    await asyncio.sleep(0.03)
    r.residency.release(await asyncio.wait_for(r.residency.acquire("a"), 1))
    behind = await r.soon("b")
    assert not behind.done()
    r.residency.release(streams[1])
    assert (await impatient).digest == "c"
    r.residency.release(impatient.result())
    assert (await behind).digest == "b"


async def test_unloading_unpins() -> None:
    r = Rig()
    await r.residency.pin("a")
    assert await r.residency.unload("a") == SIZE
    assert r.engine.added == {}


async def test_pinning_what_drains_keeps_it() -> None:
    r = Rig()
    stream = await r.residency.acquire("a")
    unloading = asyncio.create_task(r.residency.unload("a"))
    await r.settle()
    await r.residency.pin("a")
    r.residency.release(stream)
    assert await unloading == 0
    assert r.states() == {"a": "ready"}


async def test_a_failed_pin_leaves_nothing() -> None:
    r = Rig()
    r.source.absent.add("a")
    with pytest.raises(NotInStore):
        await r.residency.pin("a")
    assert r.residency.snapshot() == []


async def test_what_is_fetched_ahead_is_ready_for_the_first_request() -> None:
    r = Rig()
    r.residency.prefetch("a", force=True)
    r.residency.prefetch("a")
    await r.settle()
    assert (r.states(), r.source.fits) == ({"a": "ready"}, [("a", True)])
    await asyncio.wait_for(r.residency.acquire("a"), 1)


async def test_what_is_fetched_ahead_takes_the_place_of_the_idle_only() -> None:
    r = Rig()
    await r.use("old")
    stream = await r.residency.acquire("a")
    r.residency.prefetch("b")
    await r.settle()
    assert r.states() == {"a": "ready", "b": "ready"}
    second = await r.residency.acquire("b")
    r.residency.prefetch("c")
    await r.settle()
    assert r.states() == {"a": "ready", "b": "ready"}
    assert "c" in r.source.on_disk
    assert "c" not in r.source.reads
    for pin in (stream, second):
        r.residency.release(pin)


async def test_a_request_overtakes_what_is_fetched_ahead() -> None:
    r = Rig(room=1)
    r.residency.prefetch("ahead")
    wanted = asyncio.create_task(r.residency.acquire("wanted"))
    r.residency.release(await asyncio.wait_for(wanted, 1))
    await r.settle()
    assert len(r.residency.snapshot()) == 1


async def test_a_failed_prefetch_is_logged_and_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    r = Rig()
    r.source.absent.add("a")
    with caplog.at_level(logging.WARNING):
        r.residency.prefetch("a")
        await r.settle()
    assert r.residency.snapshot() == []
    assert ["adapter not loaded ahead" in message for message in caplog.messages] == [True]


async def test_unloading_takes_back_what_is_on_its_way_ahead() -> None:
    r = Rig(room=1)
    stream = await r.residency.acquire("a")
    r.residency.prefetch("b")
    assert await r.residency.unload("b") == 0
    assert r.states() == {"a": "ready"}
    assert r.source.forgotten == ["b"]
    r.residency.release(stream)


async def test_after_the_end_nothing_is_fetched_ahead() -> None:
    r = Rig()
    await r.residency.close()
    r.residency.prefetch("a")
    with pytest.raises(ResidencyClosed):
        await r.residency.pin("a")
    assert r.source.fits == []
