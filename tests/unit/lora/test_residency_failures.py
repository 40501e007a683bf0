"""Failures and cancellations stay with those they belong to."""

import asyncio

import pytest

from tests.unit.lora.fakes import Rig


async def test_a_failed_fetch_reaches_its_own_requests_only_and_is_not_remembered() -> None:
    r = Rig()
    r.source.absent.add("bad")
    results = await asyncio.gather(
        *(r.residency.acquire(digest) for digest in ("bad", "good", "bad")), return_exceptions=True
    )
    assert [type(result).__name__ for result in results] == ["NotInStore", "Pin", "NotInStore"]
    assert r.states() == {"good": "ready"}
    r.source.absent.clear()
    assert (await r.residency.acquire("bad")).digest == "bad"


async def test_a_failed_preparation_gives_its_memory_back() -> None:
    r = Rig(room=1)
    r.engine.fail = MemoryError("no memory")
    with pytest.raises(MemoryError, match="no memory"):
        await r.residency.acquire("a")
    r.residency.check_integrity()
    assert (await r.residency.acquire("b")).digest == "b"


async def test_what_the_engine_still_uses_is_asked_for_again() -> None:
    r = Rig(room=1)
    await r.use("a")
    r.engine.busy.add("a")
    task = await r.soon("b")
    assert not task.done()
    assert r.engine.refusals >= 1
    r.engine.busy.clear()
    assert (await task).digest == "b"


async def test_an_engine_that_has_lost_an_adapter_counts_as_empty() -> None:
    r = Rig(room=1)
    await r.use("a")
    r.engine.added.clear()
    assert (await r.residency.acquire("b")).digest == "b"


async def test_a_failing_eviction_is_told_to_the_first_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    r = Rig(room=1)
    await r.use("a")

    async def broken(digest: str) -> int:
        raise RuntimeError("device lost")

    monkeypatch.setattr(r.engine, "remove_adapter", broken)
    for call in (r.residency.acquire("b"), r.residency.unload("a")):
        with pytest.raises(RuntimeError, match="device lost"):
            await call
        await r.settle()
    assert r.states() == {"a": "ready"}


async def test_cancelling_one_of_two_leaves_the_other_its_load() -> None:
    r = Rig()
    first, second = (asyncio.create_task(r.residency.acquire("a")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).digest == "a"
    assert r.residency.snapshot()[0].pins == 1


async def test_cancelling_everybody_in_line_takes_the_adapter_out_of_it() -> None:
    r = Rig(room=1)
    pin = await r.residency.acquire("a")
    gone, stays = await r.soon("b"), await r.soon("c")
    gone.cancel()
    await r.settle()
    assert r.states() == {"a": "ready", "c": "waiting"}
    r.residency.release(pin)
    assert (await stays).digest == "c"
    assert r.engine.adds == ["a", "c"]


async def test_who_waits_for_memory_has_nothing_read() -> None:
    r = Rig(room=1)
    pin = await r.residency.acquire("a")
    waiting = [await r.soon(digest) for digest in "bcd"]
    assert r.source.reads == ["a"]
    assert len(r.source.fits) == 4
    for task in waiting:
        task.cancel()
    r.residency.release(pin)
    await r.settle()
    assert r.source.reads == ["a"]


async def test_a_pin_granted_to_a_cancelled_request_is_given_back() -> None:
    r = Rig(room=1)
    pin = await r.residency.acquire("a")
    task = await r.soon("b")
    r.residency.release(pin)
    for _ in range(1000):
        if any(row.pins for row in r.residency.snapshot()):
            break
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert r.residency.snapshot()[0].pins == 0
