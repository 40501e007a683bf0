"""From the engine thread to the loop: one wake-up for all that has gathered."""

import asyncio

import pytest

from engine.courier import Courier, Reply
from engine.errors import EngineClosed
from engine.records import TokenEvent


def _events(*ids: str) -> list[TokenEvent]:
    return [TokenEvent(request_id, (1,)) for request_id in ids]


async def test_all_that_gathers_before_the_loop_turns_comes_in_one_call() -> None:
    batches: list[list[str]] = []
    courier = Courier(
        asyncio.get_running_loop(), lambda events: batches.append([e.request_id for e in events])
    )
    for events in (_events("a", "b"), [], _events("a"), _events("c")):
        courier.send(events, [])
    assert batches == []
    await asyncio.sleep(0)
    courier.send(_events("d"), [])
    await asyncio.sleep(0)
    assert batches == [["a", "b", "a", "c"], ["d"]]


async def test_replies_settle_without_events_and_before_those_of_their_batch() -> None:
    loop = asyncio.get_running_loop()
    told: list[bool] = []
    good, bad, left = loop.create_future(), loop.create_future(), loop.create_future()
    courier = Courier(loop, lambda events: told.append(good.done()))
    left.cancel()
    courier.send(_events("a"), [Reply(good, value=3), Reply(bad, error=KeyError("x")), Reply(left, value=4)])
    assert await good == 3
    with pytest.raises(KeyError):
        await bad
    assert told == [True]
    assert left.cancelled()


def test_a_closed_loop_is_reported() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(EngineClosed, match="event loop is closed"):
        Courier(loop, lambda events: None).send(_events("a"), [])
