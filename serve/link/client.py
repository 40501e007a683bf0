"""The gateway's end of the data plane: requests out, token events in.

Who frees what: a TokenStream belongs to its caller, who ends it with `close` (which aborts the request if it
is not finished). The link only keeps the way from a request id to its stream.
"""

import asyncio
import contextlib
import itertools
from typing import Any

from engine.records import Request, TokenEvent
from serve.errors import LinkProtocolError, RemoteError, ReplicaLost
from serve.link import wire
from serve.link.peer import Peer, arguments

CONNECT_S = 5.0


class TokenStream:
    """The events of one request, those of each of its choices in order."""

    def __init__(self, link: "ReplicaLink", request: Request) -> None:
        self.priority = request.priority
        self._link = link
        self._request_id = request.id
        self._left = request.sampling.n
        self._events: list[TokenEvent] = []
        self._error: Exception | None = None
        self._ended = False
        self._wake = asyncio.Event()
        self._accepted = False

    async def accepted(self) -> None:
        """Wait until the replica has taken the request. Raises RemoteError or ReplicaLost."""
        while not self._accepted:
            if self._error is not None:
                raise self._error
            await self._wake.wait()
            self._wake.clear()
        self._wake.set()

    async def take(self) -> list[TokenEvent]:
        """All events that have gathered, waiting for the first; the last one of a choice carries `finish`.

        Raises RemoteError when the replica refused the request, ReplicaLost when the connection broke.
        """
        while not self._events:
            if self._error is not None:
                raise self._error
            self._wake.clear()
            await self._wake.wait()
        taken, self._events = self._events, []
        return taken

    def abort(self, index: int | None = None) -> None:
        """Ask the replica to stop, one choice or all; the last event of each still comes."""
        if not self._ended:
            self._link.send(["abort", self._request_id, index])

    def close(self) -> None:
        """Forget the stream; a request still under way is aborted."""
        self.abort()
        self._link.forget(self._request_id)

    def accept(self) -> None:
        """The replica has taken the request."""
        self._accepted = True
        self._wake.set()

    def push(self, event: TokenEvent) -> None:
        """An event has come."""
        self._accepted = True
        self._events.append(event)
        self._left -= event.finish is not None
        self._ended = self._left == 0
        self._wake.set()

    def fail(self, error: Exception) -> None:
        """Nothing more comes; whoever reads gets the error."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._wake.set()


class ReplicaLink(Peer):
    """One connection to one replica."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token
        self._streams: dict[str, TokenStream] = {}
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._welcome: asyncio.Future[None] = self._loop.create_future()

    @property
    def in_flight(self) -> int:
        """Requests and calls of this gateway that the replica works on."""
        return len(self._streams) + len(self._calls)

    def ahead_of(self, priority: int) -> int:
        """Those of them whose priority comes before this one."""
        return sum(stream.priority < priority for stream in self._streams.values())

    @property
    def alive(self) -> bool:
        """Whether the connection stands."""
        return not self.closed.done()

    def open(self, request: Request, *, force: bool = False) -> TokenStream:
        """Send a request; its events come through the stream. Raises ReplicaLost when the link is down.

        force: its adapter was accepted although it was trained on another base model.
        """
        if not self.alive:
            raise ReplicaLost
        stream = TokenStream(self, request)
        self._streams[request.id] = stream
        self.send(wire.request_message(request, force))
        return stream

    async def call(self, method: str, *args: Any) -> Any:
        """Call a control method of the replica; cancelled, it is cancelled there too.

        Raises RemoteError or ReplicaLost.
        """
        if not self.alive:
            raise ReplicaLost
        number = next(self._numbers)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._calls[number] = future
        self.send(["call", number, method, list(args)])
        try:
            return await future
        except asyncio.CancelledError:
            self.send(["cancel", number])
            raise
        finally:
            self._calls.pop(number, None)

    def forget(self, request_id: str) -> None:
        """Drop the way to a stream; events of it that still come are ignored."""
        self._streams.pop(request_id, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.send(["hello", wire.VERSION, self._token])

    def receive(self, message: wire.Message) -> None:
        match message[0]:
            case "events":
                for item in arguments(message, 1)[0]:
                    if stream := self._streams.get(item[0]):
                        stream.push(wire.read_event(item))
            case "accepted":
                if stream := self._streams.get(arguments(message, 1)[0]):
                    stream.accept()
            case "refused":
                request_id, *described = arguments(message, 4)
                if stream := self._streams.get(request_id):
                    stream.fail(RemoteError(*described))
            case "reply":
                number, value = arguments(message, 2)
                self._settle(number, value, None)
            case "failed":
                number, *described = arguments(message, 4)
                self._settle(number, None, RemoteError(*described))
            case "welcome":
                self._meet(arguments(message, 1)[0])
            case name:
                raise LinkProtocolError(f"unknown message {name!r:.80}")

    def lost(self) -> None:
        for stream in self._streams.values():
            stream.fail(ReplicaLost())
        for future in self._calls.values():
            if not future.done():
                future.set_exception(ReplicaLost())
        if not self._welcome.done():
            self._welcome.set_exception(ReplicaLost())

    def _settle(self, number: int, value: Any, error: Exception | None) -> None:
        future = self._calls.get(number)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def _meet(self, version: int) -> None:
        if version != wire.VERSION:
            raise LinkProtocolError(f"the replica speaks version {version}, this gateway {wire.VERSION}")
        if not self._welcome.done():
            self._welcome.set_result(None)

    async def welcomed(self) -> None:
        """Wait for the replica's greeting. Raises ReplicaLost."""
        await self._welcome


async def connect(host: str, port: int, token: str) -> ReplicaLink:
    """Connect and shake hands. Raises ReplicaLost when nobody answers in time."""
    loop = asyncio.get_running_loop()
    link: ReplicaLink | None = None
    try:
        async with asyncio.timeout(CONNECT_S):
            _, link = await loop.create_connection(lambda: ReplicaLink(token), host, port)
            await link.welcomed()
    except (OSError, TimeoutError) as error:
        if link is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await link.close()
        raise ReplicaLost from error
    return link
