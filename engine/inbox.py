"""Commands from the asyncio loop to the engine thread, applied between steps. Knows no engine's insides."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.courier import Reply
from engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Command:
    """Something to do with the engine; whoever awaits `future` gets what came of it."""

    action: Callable[[Engine], object]
    future: asyncio.Future[Any]

    def apply(self, engine: Engine) -> Reply:
        try:
            return Reply(self.future, value=self.action(engine))
        except Exception as error:  # belongs to the caller, who awaits it; the thread goes on
            return Reply(self.future, error=error)


class Inbox:
    """A pile of commands and one condition: the thread sleeps on it while there is nothing to do."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._commands: list[Command] = []
        self._closed = False

    def put(self, command: Command) -> None:
        with self._changed:
            self._commands.append(command)
            self._changed.notify()

    def close(self) -> None:
        """No more than what is in hand will be done; take() ends when that is."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def take(self, *, has_work: bool) -> list[Command] | None:
        """All commands; without work, sleeps until there are some. None when closed and nothing is left."""
        with self._changed:
            while not (self._commands or has_work or self._closed):
                self._changed.wait()
            commands, self._commands = self._commands, []
            return None if not commands and not has_work else commands
