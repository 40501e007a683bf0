"""Carries what the engine thread has to say over to the asyncio loop, many things at a time.

The thread never waits for the loop: it adds to a pile, and wakes the loop only when no wake-up is under
way. However slow the loop, one call takes all that has gathered. Knows no engine.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.errors import EngineClosed
from engine.records import TokenEvent

Sink = Callable[[list[TokenEvent]], None]


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of a command: a value, or the exception to raise where it is awaited."""

    future: asyncio.Future[Any]
    value: object = None
    error: Exception | None = None

    def settle(self) -> None:
        """Called on the loop. A future whose caller has left is left alone."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.value)
        else:
            self.future.set_exception(self.error)


class Courier:
    """One per engine thread and loop; `sink` is called on the loop, after the replies of its batch."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sink: Sink) -> None:
        self._loop = loop
        self._sink = sink
        self._lock = threading.Lock()
        self._events: list[TokenEvent] = []
        self._replies: list[Reply] = []
        self._on_the_way = False

    def send(self, events: list[TokenEvent], replies: list[Reply]) -> None:
        """Called on the engine thread. Raises EngineClosed when the loop is gone."""
        if not events and not replies:
            return
        with self._lock:
            self._events += events
            self._replies += replies
            wake, self._on_the_way = not self._on_the_way, True
        if not wake:
            return
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError as error:  # what asyncio raises for a closed loop
            raise EngineClosed("the event loop is closed; nobody takes the events") from error

    def _deliver(self) -> None:
        with self._lock:
            events, self._events = self._events, []
            replies, self._replies = self._replies, []
            self._on_the_way = False
        for reply in replies:
            reply.settle()
        if events:
            self._sink(events)
