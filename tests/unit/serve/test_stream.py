import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect, Request

from serve import sse
from serve.web.body import while_connected
from serve.web.stream import EventStream


class Wire:
    """A client on the other side of ASGI: takes messages, and leaves when told to."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.left = asyncio.Event()
        self.said = asyncio.Event()

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        self.said.set()

    async def receive(self) -> Any:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def heard(self, text: bytes) -> None:
        while text not in self.body():
            self.said.clear()
            await self.said.wait()

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
    return EventStream(source.events(), {"x-one": "1"}, at_end, keep_alive_s=60)


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


async def test_silence_is_filled_with_comments_and_speech_is_not() -> None:
    wire = Wire()

    async def events() -> AsyncGenerator[bytes, None]:
        for _ in range(50):
            yield b"data: 1\n\n"
        await wire.heard(sse.COMMENT * 2)
        yield b"data: 2\n\n"

    made = EventStream(events(), {}, lambda: None, keep_alive_s=0.02)
    await made({"type": "http"}, wire.receive, wire.send)
    assert wire.body().startswith(b"data: 1\n\n" * 50 + sse.COMMENT * 2)
    assert wire.body().replace(sse.COMMENT, b"") == b"data: 1\n\n" * 50 + b"data: 2\n\n"
    assert not wire.sent[-1]["more_body"]


@given(st.lists(st.tuples(st.binary(max_size=9), st.booleans()), max_size=30))
@settings(max_examples=30)
def test_comments_stand_between_parts_only(parts: list[tuple[bytes, bool]]) -> None:
    """Each part is one message to the server, comments are messages of their own, whatever the timing."""
    wire = Wire()

    async def events() -> AsyncGenerator[bytes, None]:
        for part, waits in parts:
            await asyncio.sleep(0.001 if waits else 0)
            yield part

    made = EventStream(events(), {}, lambda: None, keep_alive_s=0.0005)
    asyncio.run(made({"type": "http"}, wire.receive, wire.send))
    bodies = [message["body"] for message in wire.sent[1:-1]]
    assert [body for body in bodies if body != sse.COMMENT] == [part for part, _ in parts]
    assert not wire.sent[-1]["more_body"]


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
