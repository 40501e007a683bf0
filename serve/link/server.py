"""The replica's end of the data plane: takes requests from gateways and sends each its own events.

Who frees what: a request belongs to the connection that added it, and so does a call. When the connection
ends, all its requests are aborted and its calls cancelled; when the engine reports the last event of its last
choice, the way to a request is forgotten.
"""

import asyncio
import hmac
from typing import Any, Protocol

from engine.records import Request, TokenEvent
from serve.errors import LinkProtocolError
from serve.link import wire
from serve.link.peer import Peer, arguments
from serve.open_requests import OpenRequests


class Handler(Protocol):
    """What a replica does with messages; called on the event loop."""

    async def add(self, request: Request, *, force: bool) -> None:
        """Take a request; its events go through LinkServer.emit. Raises what refused it."""

    def abort(self, request_id: str, index: int | None) -> None:
        """Stop a request, or one of its choices, at any point of its life; unknown ids are ignored."""

    async def call(self, method: str, args: list[Any]) -> Any:
        """Answer a control call with plain data. Raises what went wrong."""


class LinkServer:
    """Listens for gateways. `token` is the secret that all processes of one app share."""

    def __init__(self, handler: Handler, token: str) -> None:
        self._handler = handler
        self._token = token
        self._owners: OpenRequests[_Connection] = OpenRequests()
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int = 0) -> int:
        """Listen; returns the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self, self._handler, self._token), host, port
        )
        listening: int = self._server.sockets[0].getsockname()[1]
        return listening

    def emit(self, events: list[TokenEvent]) -> None:
        """Send all events of a step: one message for each gateway that has any."""
        batches: dict[_Connection, list[list[Any]]] = {}
        for event in events:
            owner = self._owners.get(event.request_id)
            if owner is None:
                continue
            batches.setdefault(owner, []).append(wire.write_event(event))
            if event.finish is not None:
                self._owners.end_choice(event.request_id)
        for connection, batch in batches.items():
            connection.send(["events", batch])

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            await connection.close()

    def own(self, request: Request, connection: "_Connection") -> None:
        """Events of the request go to this connection."""
        self._owners.open(request.id, request.sampling.n, connection)

    def disown(self, request_id: str) -> None:
        """The request was refused."""
        self._owners.close(request_id)

    def enter(self, connection: "_Connection") -> None:
        """A gateway has shown the token."""
        self._connections.add(connection)

    def leave(self, connection: "_Connection") -> None:
        """A connection has ended: its requests are aborted."""
        self._connections.discard(connection)
        for request_id in self._owners.of(connection):
            self._owners.close(request_id)
            self._handler.abort(request_id, None)


class _Connection(Peer):
    """One gateway."""

    def __init__(self, server: LinkServer, handler: Handler, token: str) -> None:
        super().__init__()
        self._server = server
        self._handler = handler
        self._token = token
        self._trusted = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._arrived: set[str] = set()
        """Requests whose task has not begun: an abort that came in the same read finds them only here."""

    def receive(self, message: wire.Message) -> None:
        if not self._trusted:
            self._meet(message)
            return
        match message[0]:
            case "add":
                arguments(message, 7)
                request, force = wire.read_request(message)
                self._arrived.add(request.id)
                self._spawn(self._add(request, force))
            case "abort":
                self._give_up(*arguments(message, 2))
            case "call":
                number, method, args = arguments(message, 3)
                self._calls[number] = self._spawn(self._call(number, method, args))
                self._calls[number].add_done_callback(lambda _: self._calls.pop(number, None))
            case "cancel":
                if task := self._calls.get(arguments(message, 1)[0]):
                    task.cancel()
            case name:
                raise LinkProtocolError(f"unknown message {name!r:.80}")

    def lost(self) -> None:
        self._server.leave(self)
        for task in self._calls.values():
            task.cancel()

    def _meet(self, message: wire.Message) -> None:
        name, *said = message
        if name != "hello" or len(said) != 2 or not isinstance(said[1], str):
            raise LinkProtocolError(f"expected a hello, got {name!r:.80}")
        if said[0] != wire.VERSION or not hmac.compare_digest(said[1].encode(), self._token.encode()):
            raise LinkProtocolError("the gateway has another version or another token")
        self._trusted = True
        self._server.enter(self)
        self.send(["welcome", wire.VERSION])

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _give_up(self, request_id: str, index: int | None) -> None:
        if request_id in self._arrived:
            self._arrived.remove(request_id)
        else:
            self._handler.abort(request_id, index)

    async def _add(self, request: Request, force: bool) -> None:
        self._server.own(request, self)
        try:
            if request.id not in self._arrived:
                raise LinkProtocolError("aborted before it was accepted")
            self._arrived.remove(request.id)
            await self._handler.add(request, force=force)
        except Exception as error:  # the boundary: every refusal goes back to the gateway by name
            self._server.disown(request.id)
            self.send(["refused", request.id, *wire.describe(error)])
            return
        if self.closed.done():
            self._handler.abort(request.id, None)
        else:
            self.send(["accepted", request.id])

    async def _call(self, number: int, method: str, args: list[Any]) -> None:
        try:
            value = await self._handler.call(method, args)
        except Exception as error:  # the boundary: every failure goes back to the gateway by name
            self.send(["failed", number, *wire.describe(error)])
            return
        self.send(["reply", number, value])
