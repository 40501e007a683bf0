import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from serve.web.body import while_connected
from serve.web.stream import EventStream


class Wire:
    """A client on the other side of ASGI: takes messages, and leaves when told to."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.left = asyncio.Event()

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def receive(self) -> Any:
        await self.left.wait()
        return {"type": "http.disconnect"}

    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


class Source:
    """Events, and whether they were closed."""

    def __init__(self, *, endless: bool) -> None:
        self.endless = endless
        self.closed = False

    async def events(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"data: 1\n\n"
            if self.endless:
                await asyncio.Event().wait()
            yield b"data: 2\n\n"
        finally:
            self.closed = True


def stream(source: Source, at_end: Callable[[], None]) -> EventStream:
    return EventStream(source.events(), {"x-one": "1"}, at_end)


async def test_events_are_sent_and_the_source_is_closed() -> None:
    wire, source, ended = Wire(), Source(endless=False), []
    await stream(source, lambda: ended.append(1))({"type": "http"}, wire.receive, wire.send)
    assert wire.body() == b"data: 1\n\ndata: 2\n\n"
    headers = dict(wire.sent[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"x-one"] == b"1"
    assert b"content-length" not in headers
    assert not wire.sent[-1]["more_body"]
    assert source.closed
    assert ended == [1]


async def test_a_client_that_leaves_ends_the_source() -> None:
    wire, source, ended = Wire(), Source(endless=True), []
    task = asyncio.create_task(
        stream(source, lambda: ended.append(1))({"type": "http"}, wire.receive, wire.send)
    )
    await asyncio.sleep(0.05)
    wire.left.set()
    await asyncio.wait_for(task, 5)
    assert source.closed
    assert ended == [1]


async def test_a_client_that_left_before_the_first_event_is_cleaned_up_after_too() -> None:
    wire, source, ended = Wire(), Source(endless=True), []
    wire.left.set()
    await asyncio.wait_for(
        stream(source, lambda: ended.append(1))({"type": "http"}, wire.receive, wire.send), 5
    )
    assert ended == [1]


async def test_work_is_cancelled_when_its_client_leaves() -> None:
    wire, cancelled = Wire(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    request = Request({"type": "http", "headers": []}, wire.receive, wire.send)
    asyncio.get_running_loop().call_later(0.05, wire.left.set)
    with pytest.raises(ClientDisconnect):
        await asyncio.wait_for(while_connected(request, work()), 5)
    assert cancelled.is_set()


async def test_work_that_ends_gives_its_result_or_its_error() -> None:
    wire = Wire()
    request = Request({"type": "http", "headers": []}, wire.receive, wire.send)

    async def fine() -> int:
        return 7

    async def broken() -> int:
        raise ValueError("broken")

    assert await while_connected(request, fine()) == 7
    with pytest.raises(ValueError, match="broken"):
        await while_connected(request, broken())
