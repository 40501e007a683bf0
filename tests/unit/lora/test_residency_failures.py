"""Failures and cancellations stay with those they belong to."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest


async def test_a_failed_load_reaches_its_own_requests_only_and_is_not_remembered(
    rig: Callable[..., Any],
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


async def test_a_failed_install_gives_the_slot_back(rig: Callable[..., Any]) -> None:
    r = rig(num_slots=1)
    r.engine.fail = RuntimeError("no memory")
    with pytest.raises(RuntimeError, match="no memory"):
        await r.residency.acquire("a")
    r.residency.check_integrity()
    assert (await r.residency.acquire("b")).digest == "b"


async def test_a_slot_the_engine_still_uses_is_asked_for_again(rig: Callable[..., Any]) -> None:
    r = rig(num_slots=1)
    r.residency.release(await r.residency.acquire("a"))
    r.engine.busy.add("a")
    task = await r.soon("b")
    assert not task.done()
    assert r.engine.refusals >= 1
    r.engine.busy.clear()
    assert (await task).digest == "b"


async def test_an_engine_that_has_lost_an_adapter_counts_as_empty(rig: Callable[..., Any]) -> None:
    r = rig(num_slots=1)
    r.residency.release(await r.residency.acquire("a"))
    r.engine.loaded.clear()
    assert (await r.residency.acquire("b")).digest == "b"


async def test_a_failing_eviction_is_told_to_the_first_in_line(
    rig: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    r = rig(num_slots=1)
    r.residency.release(await r.residency.acquire("a"))

    async def broken(digest: str) -> int:
        raise RuntimeError("device lost")

    monkeypatch.setattr(r.engine, "remove_adapter", broken)
    for call in (r.residency.acquire("b"), r.residency.unload("a")):
        with pytest.raises(RuntimeError, match="device lost"):
            await call
        await r.settle()
    assert r.states() == {"a": "ready", "b": "host"}


async def test_cancelling_one_of_two_leaves_the_other_its_load(rig: Callable[..., Any]) -> None:
    r = rig()
    first, second = (asyncio.create_task(r.residency.acquire("a")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).digest == "a"
    assert r.residency.snapshot()[0].pins == 1


async def test_cancelling_everybody_in_line_takes_the_adapter_out_of_it(rig: Callable[..., Any]) -> None:
    r = rig(num_slots=1)
    pin = await r.residency.acquire("a")
    gone, stays = await r.soon("b"), await r.soon("c")
    gone.cancel()
    await r.settle()
    assert r.states()["b"] == "host"
    r.residency.release(pin)
    assert (await stays).digest == "c"
    assert r.engine.loads == ["a", "c"]


async def test_a_pin_granted_to_a_cancelled_request_is_given_back(rig: Callable[..., Any]) -> None:
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
