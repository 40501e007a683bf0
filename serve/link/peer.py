"""What both ends of a connection share: framing, the heartbeat, and one way to end.

A peer that has been silent for SILENCE_S is taken for dead: a killed process closes its sockets, a lost
machine does not.
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from typing import Any, cast

from serve.errors import LinkProtocolError
from serve.link import wire

HEARTBEAT_S = 3.0
SILENCE_S = 20.0
MAX_UNSENT_BYTES = 64 << 20

logger = logging.getLogger(__name__)


class Peer(asyncio.Protocol, ABC):
    """One end. Subclasses implement `receive` for a message and `lost` for the end of the connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unpacker = wire.unpacker()
        self._transport: asyncio.Transport | None = None
        self._heard = self._loop.time()
        self._beat: asyncio.TimerHandle | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @abstractmethod
    def receive(self, message: wire.Message) -> None:
        """Handle one message. Raises LinkProtocolError, TypeError or ValueError for a malformed one."""

    @abstractmethod
    def lost(self) -> None:
        """The connection has ended, whoever ended it; called once."""

    def send(self, message: wire.Message) -> None:
        """Queue a message; one that cannot be sent any more is dropped, and `lost` has said so or will."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            logger.error("peer does not read", extra={"action": "link_abort"})
            self._transport.abort()
            return
        self._transport.write(wire.pack(message))

    async def close(self) -> None:
        """Send what is queued, then end the connection."""
        if self._transport is not None:
            self._transport.close()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(self.closed), 2.0)
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is not derived from it
        self._tick()

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            self._unpacker.feed(data)
            for message in self._unpacker:
                if not isinstance(message, list) or not message or not isinstance(message[0], str):
                    raise LinkProtocolError(
                        f"a message must be a list that begins with its name, got {message!r:.80}"
                    )
                self._dispatch(message)
        except (LinkProtocolError, ValueError, TypeError, KeyError) as error:
            # Bytes of a foreign program: nothing behind them can be trusted, so the connection ends.
            logger.error("malformed message: %s", error, extra={"action": "link_abort"})
            self._abort()
        except Exception as error:  # msgpack has a tree of its own for bytes that are no msgpack
            logger.error("undecodable bytes: %r", error, extra={"action": "link_abort"})
            self._abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._beat is not None:
            self._beat.cancel()
        if not self.closed.done():
            self.closed.set_result(None)
            self.lost()

    def _dispatch(self, message: wire.Message) -> None:
        match message[0]:
            case "ping":
                self.send(["pong"])
            case "pong":
                pass
            case _:
                self.receive(message)

    def _tick(self) -> None:
        if self._loop.time() - self._heard > SILENCE_S:
            logger.error("peer is silent", extra={"action": "link_abort"})
            self._abort()
            return
        self.send(["ping"])
        self._beat = self._loop.call_later(HEARTBEAT_S, self._tick)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def arguments(message: wire.Message, count: int) -> list[Any]:
    """The items behind a message's name. Raises LinkProtocolError unless there are `count`."""
    if len(message) != count + 1:
        raise LinkProtocolError(f"{message[0]!r} has {len(message) - 1} arguments, expected {count}")
    return message[1:]
