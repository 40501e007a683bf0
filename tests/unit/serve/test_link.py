import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from engine.errors import QueueFull
from engine.records import Request, SamplingParams, TokenEvent
from serve.errors import RemoteError, ReplicaLost
from serve.link import LinkServer, peer
from serve.link.client import ReplicaLink, connect

TOKEN = "shared"


class Fake:
    """A replica that only writes down what it is told."""

    def __init__(self) -> None:
        self.added: list[str] = []
        self.aborted: list[str] = []
        self.stopped: list[tuple[str, int]] = []
        self.ended: list[str] = []
        self.refusal: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def add(self, request: Request, *, force: bool) -> None:
        await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal
        self.added.append(request.id)

    def abort(self, request_id: str, index: int | None) -> None:
        if index is None:
            self.aborted.append(request_id)
        else:
            self.stopped.append((request_id, index))

    async def call(self, method: str, args: list[Any]) -> Any:
        if method == "fail":
            raise KeyError(method)
        if method == "wait":
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.append(args[0])
        return [method, *args]


class Pair:
    """A server and what connects to it."""

    def __init__(self) -> None:
        self.replica = Fake()
        self.server = LinkServer(self.replica, TOKEN)
        self.port = 0

    async def link(self) -> ReplicaLink:
        return await connect("127.0.0.1", self.port, TOKEN)


@pytest_asyncio.fixture
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    made.port = await made.server.start("127.0.0.1")
    yield made
    await made.server.close()


def request(name: str, n: int = 1) -> Request:
    return Request(name, (1, 2), SamplingParams(5, n=n))


async def until(check: Any) -> None:
    async with asyncio.timeout(5):
        while not check():  # noqa: ASYNC110  the thing waited for has no event to set
            await asyncio.sleep(0.005)


async def test_events_reach_the_stream_that_asked(pair: Pair) -> None:
    link = await pair.link()
    first, second = link.open(request("a")), link.open(request("b"))
    await asyncio.gather(first.accepted(), second.accepted())
    pair.server.emit([TokenEvent("a", (1,)), TokenEvent("b", (2,)), TokenEvent("nobody", (9,))])
    assert [event.token_ids for event in await first.take()] == [(1,)]
    assert [event.token_ids for event in await second.take()] == [(2,)]
    await link.close()


async def test_a_request_given_up_before_it_was_begun_is_never_added(pair: Pair) -> None:
    link = await pair.link()
    link.open(request("left")).close()  # both messages arrive in one read
    await link.open(request("stays")).accepted()
    await until(lambda: pair.replica.added)
    assert pair.replica.added == ["stays"]
    pair.server.emit([TokenEvent("left", (1,))])
    assert link.in_flight == 1
    await link.close()


async def test_a_reader_takes_all_that_has_gathered(pair: Pair) -> None:
    link = await pair.link()
    stream = link.open(request("a"))
    await stream.accepted()
    for token in range(5):
        pair.server.emit([TokenEvent("a", (token,))])
    pair.server.emit([TokenEvent("a", (5,), finish="length")])
    taken: list[TokenEvent] = []
    while not taken or taken[-1].finish is None:
        taken += await stream.take()
    assert [event.token_ids[0] for event in taken] == [0, 1, 2, 3, 4, 5]
    await link.close()


async def test_one_message_carries_all_requests_of_a_step(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await pair.link()
    streams = [link.open(request(str(number))) for number in range(20)]
    await asyncio.gather(*(stream.accepted() for stream in streams))
    sent: list[str] = []
    send = peer.Peer.send
    monkeypatch.setattr(
        peer.Peer, "send", lambda self, message: (sent.append(message[0]), send(self, message))
    )
    pair.server.emit([TokenEvent(str(number), (number,)) for number in range(20)])
    for stream in streams:
        await stream.take()
    assert sent.count("events") == 1
    await link.close()


async def test_a_refusal_is_raised_by_name(pair: Pair) -> None:
    pair.replica.refusal = QueueFull(8, 8)
    link = await pair.link()
    stream = link.open(request("a"))
    with pytest.raises(RemoteError, match="at most 8 may") as caught:
        await stream.accepted()
    assert caught.value.kind == "QueueFull"
    await link.close()


async def test_the_loss_of_a_replica_fails_its_streams_and_calls(pair: Pair) -> None:
    link = await pair.link()
    stream = link.open(request("a"))
    await stream.accepted()
    pair.server.emit([TokenEvent("a", (1,))])
    await until(lambda: stream._events)
    await pair.server.close()
    assert [event.token_ids for event in await stream.take()] == [(1,)]
    with pytest.raises(ReplicaLost):
        await stream.take()
    with pytest.raises(ReplicaLost):
        link.open(request("b"))
    with pytest.raises(ReplicaLost):
        await link.call("anything")


async def test_the_loss_of_a_gateway_aborts_its_requests_alone(pair: Pair) -> None:
    one, other = await pair.link(), await pair.link()
    streams = [one.open(request("a")), one.open(request("b")), other.open(request("c"))]
    await asyncio.gather(*(stream.accepted() for stream in streams))
    await one.close()
    await until(lambda: len(pair.replica.aborted) == 2)
    assert sorted(pair.replica.aborted) == ["a", "b"]
    await other.close()


async def test_a_request_that_was_being_added_when_its_gateway_left_is_aborted(pair: Pair) -> None:
    pair.replica.gate.clear()
    link = await pair.link()
    link.open(request("a"))
    await asyncio.sleep(0.05)
    await link.close()
    pair.replica.gate.set()
    await until(lambda: pair.replica.added == ["a"] and pair.replica.aborted)
    assert set(pair.replica.aborted) == {"a"}


async def test_closing_a_stream_aborts_what_is_not_finished(pair: Pair) -> None:
    link = await pair.link()
    running, finished = link.open(request("a")), link.open(request("b"))
    await asyncio.gather(running.accepted(), finished.accepted())
    pair.server.emit([TokenEvent("b", (1,), finish="stop")])
    await finished.take()
    running.close()
    finished.close()
    await until(lambda: pair.replica.aborted)
    assert pair.replica.aborted == ["a"]
    assert link.in_flight == 0
    await link.close()


async def test_a_request_is_open_until_all_of_its_choices_have_ended(pair: Pair) -> None:
    link = await pair.link()
    stream = link.open(request("a", n=3))
    await stream.accepted()
    pair.server.emit([TokenEvent("a", (1,), finish="stop", index=2), TokenEvent("a", (2,), index=1)])
    assert [event.index for event in await stream.take()] == [2, 1]
    stream.abort(1)
    await until(lambda: pair.replica.stopped)
    assert pair.replica.stopped == [("a", 1)]
    pair.server.emit([TokenEvent("a", (), finish="abort", index=1)])
    pair.server.emit([TokenEvent("a", (3,), finish="length", index=0)])
    taken = await stream.take()
    taken += await stream.take() if len(taken) == 1 else []
    assert [event.finish for event in taken] == ["abort", "length"]
    stream.close()
    await link.call("after", "it")
    assert pair.replica.aborted == []
    await link.close()


async def test_the_loss_of_a_gateway_aborts_choices_that_have_not_ended(pair: Pair) -> None:
    link = await pair.link()
    await link.open(request("a", n=2)).accepted()
    pair.server.emit([TokenEvent("a", (1,), finish="stop", index=0)])
    await link.close()
    await until(lambda: pair.replica.aborted)
    assert pair.replica.aborted == ["a"]


async def test_control_calls_are_answered_or_fail_by_name(pair: Pair) -> None:
    link = await pair.link()
    assert await link.call("load", "sha256:a", False) == ["load", "sha256:a", False]
    with pytest.raises(RemoteError) as caught:
        await link.call("fail")
    assert caught.value.kind == "KeyError"
    await link.close()


async def test_a_wrong_token_is_turned_away(pair: Pair) -> None:
    with pytest.raises(ReplicaLost):
        await connect("127.0.0.1", pair.port, "guess")
    assert pair.replica.added == []


@pytest.mark.parametrize(
    "noise", [b"GET / HTTP/1.1\r\n\r\n", b"\xc1\xc1", b"\x93\x01\x02\x03", b"\x91\xa5hello"]
)
async def test_noise_ends_the_connection_and_nothing_else(pair: Pair, noise: bytes) -> None:
    good = await pair.link()
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.port)
    writer.write(noise)
    async with asyncio.timeout(5):
        while await reader.read(4096):
            pass
    writer.close()
    assert await good.call("still", "here") == ["still", "here"]
    await good.close()


async def test_nobody_there_is_a_lost_replica() -> None:
    with pytest.raises(ReplicaLost):
        await connect("127.0.0.1", 1, TOKEN)


async def test_a_silent_peer_is_taken_for_dead(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    link = await pair.link()
    stream = link.open(request("a"))
    monkeypatch.setattr(peer, "SILENCE_S", -1.0)
    link._tick()
    with pytest.raises(ReplicaLost):
        await stream.take()


async def test_a_call_that_nobody_waits_for_any_more_is_cancelled(pair: Pair) -> None:
    link, other = await pair.link(), await pair.link()
    given_up = asyncio.create_task(link.call("wait", "given up"))
    stays = asyncio.create_task(other.call("wait", "stays"))
    await until(lambda: link.in_flight == other.in_flight == 1)
    await other.call("echo")  # so that the first calls have begun
    given_up.cancel()
    await until(lambda: pair.replica.ended == ["given up"])
    assert link.in_flight == 0
    assert await link.call("echo", 1) == ["echo", 1]
    await other.close()  # whoever made a call takes it along
    await until(lambda: pair.replica.ended == ["given up", "stays"])
    with pytest.raises(ReplicaLost):
        await stays
    await link.close()
