"""The engine thread: applies commands, steps while there is work, sleeps while there is none.

It alone touches the engine. Whatever a step raises, the thread goes on. Knows no asyncio beyond the
courier that speaks to it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from engine.courier import Courier, Reply
from engine.engine import Engine
from engine.errors import EngineClosed
from engine.inbox import Inbox
from engine.records import AdapterInfo, EngineStats, TokenEvent

if TYPE_CHECKING:
    from engine.adapter_weights import AdapterWeights
    from engine.grammar import Grammar
    from engine.guidance import PreparedGrammar
    from engine.ports import PreparedAdapter

logger = logging.getLogger(__name__)

UNHEALTHY_AFTER = 3
"""Failed steps in a row after which the engine is no longer healthy."""

PUBLISH_EVERY_S = 0.05
"""While step follows step, figures are this old at most."""


class Preparer(Protocol):
    """The part of an engine that any thread may call, beside a running step."""

    def prepare_adapter(self, weights: AdapterWeights) -> PreparedAdapter: ...

    def prepare_grammar(self, grammar: Grammar) -> PreparedGrammar: ...

    def kept_grammar(self, grammar: Grammar) -> PreparedGrammar | None: ...


class StepThread:
    """Runs one engine. `stats` and `adapters` are replaced whole, to be read anywhere.

    preparer: the engine, for what any thread may ask of it; None until it is built.

    build: makes the engine, on this thread, as the first thing it does.
    ready: settled then, with build's exception if it raised, which ends the thread.
    ended: settled last, when no command is taken and nothing sent any more.
    """

    def __init__(
        self,
        build: Callable[[], Engine],
        inbox: Inbox,
        courier: Courier,
        *,
        ready: asyncio.Future[None],
        ended: asyncio.Future[None],
    ) -> None:
        self.stats = EngineStats()
        self.adapters: dict[str, AdapterInfo] = {}
        self.preparer: Preparer | None = None
        self.max_model_len = 0
        self._published_at = 0.0
        self._build = build
        self._inbox = inbox
        self._courier = courier
        self._ready = ready
        self._ended = ended
        self._thread = threading.Thread(target=self._main, name="engine-step", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    @property
    def healthy(self) -> bool:
        """Running, and not failing step after step."""
        return self._thread.is_alive() and self.stats.consecutive_failures < UNHEALTHY_AFTER

    def _main(self) -> None:
        try:
            engine = self._build()
        except Exception as error:  # raised where start() is awaited
            self._courier.send([], [Reply(self._ready, error=error), Reply(self._ended)])
            return
        self.max_model_len = engine.max_model_len
        self.preparer = engine
        self._publish(engine)
        try:
            self._courier.send([], [Reply(self._ready)])
            while self._turn(engine):
                pass
            self._courier.send([], [Reply(self._ended)])
        except EngineClosed:
            logger.warning("event loop is gone", extra={"action": "engine_abandoned"})

    def _turn(self, engine: Engine) -> bool:
        """Apply what has come in, then advance by one step; False when closed and done."""
        commands = self._inbox.take(has_work=engine.has_work)
        if commands is None:
            return False
        replies = [command.apply(engine) for command in commands]
        if replies:
            self._publish(engine)
            self._courier.send([], replies)
        events = self._guarded(engine, engine.step) if engine.has_work else []
        if not engine.has_work or time.monotonic() - self._published_at >= PUBLISH_EVERY_S:
            self._publish(engine)
        self._courier.send(events, [])
        if not engine.has_work:
            self._courier.send(self._guarded(engine, lambda: _check_idle(engine)), [])
        return True

    def _guarded(self, engine: Engine, action: Callable[[], list[TokenEvent]]) -> list[TokenEvent]:
        try:
            return action()
        except Exception as error:  # a bug of the engine's own: fail what it touched, keep serving
            logger.exception("engine recovers", extra={"action": "engine_recovers"})
            return engine.recover(f"{type(error).__name__}: {error}")

    def _publish(self, engine: Engine) -> None:
        self._published_at = time.monotonic()
        self.stats = engine.stats()
        self.adapters = engine.adapters()


def _check_idle(engine: Engine) -> list[TokenEvent]:
    """With nothing running every block must be free: the moment when a leak shows, and costs no one."""
    engine.check_integrity()
    return []
