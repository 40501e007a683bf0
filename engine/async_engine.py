"""The engine for asyncio: a thread steps it, and events come back to the loop in batches.

Everything here but what prepares is called on the loop that called start(). Knows no model: requests,
events and adapters pass through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from engine.config import EngineConfig
from engine.courier import Courier, Sink
from engine.engine import Engine
from engine.errors import EngineClosed
from engine.inbox import Command, Inbox
from engine.records import AdapterInfo, EngineStats, Request
from engine.step_thread import Preparer, StepThread

if TYPE_CHECKING:
    from engine.adapter_weights import AdapterWeights
    from engine.grammar import Grammar
    from engine.guidance import PreparedGrammar
    from engine.ports import PreparedAdapter

T = TypeVar("T")

MakeEngine = Callable[[EngineConfig], Engine]


class AsyncEngine:
    """One engine on its own thread.

    sink: called on the loop with all events gathered since its last call, in order. A request's first
        event may reach it before add() has returned: make ready to receive before adding.
    make_engine: called on the engine's thread; by default Engine itself.
    """

    def __init__(self, config: EngineConfig, sink: Sink, *, make_engine: MakeEngine = Engine) -> None:
        self._config = config
        self._sink = sink
        self._make_engine = make_engine
        self._inbox = Inbox()
        self._thread: StepThread | None = None
        self._ended: asyncio.Future[None] | None = None
        self._closing = False

    async def start(self) -> None:
        """Build the engine; returns when it serves. Raises what building it raises."""
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        self._ended = loop.create_future()
        self._thread = StepThread(
            lambda: self._make_engine(self._config),
            self._inbox,
            Courier(loop, self._sink),
            ready=ready,
            ended=self._ended,
        )
        self._thread.start()
        await ready

    async def close(self, timeout_s: float = 30.0) -> None:
        """Take no more requests, finish those taken in, stop the thread.

        What is not finished after `timeout_s` seconds is aborted. Closing twice does nothing.
        """
        self._closing = True
        if self._thread is None or self._ended is None or self._ended.done():
            return
        self._inbox.close()
        try:
            await asyncio.wait_for(asyncio.shield(self._ended), timeout_s)
        except TimeoutError:
            self._put(Engine.abort_all)
            await self._ended
        self._thread.join()

    async def add(self, request: Request, grammar: PreparedGrammar | None = None) -> None:
        """Take a request in between two steps. Raises what Engine.add raises, and EngineClosed.

        grammar: the request's, prepared; without it the steps of all wait while it is.
        Cancelled while waiting, it aborts the request.
        """
        await self._take_in(request, lambda engine: engine.add(request, grammar))

    async def fork(self, parent_id: str, request: Request) -> None:
        """Take in a request that goes on from a live one, as add() does. Raises what Engine.fork raises."""
        await self._take_in(request, lambda engine: engine.fork(parent_id, request))

    def abort(self, request_id: str, index: int | None = None) -> None:
        """End a request, or one of its choices, before the next step; see Engine.abort.

        The last event of each choice that ends, finish "abort", reaches the sink.
        """
        self._put(lambda engine: engine.abort(request_id, index))

    def prepare_adapter(self, weights: AdapterWeights) -> PreparedAdapter:
        """See Engine.prepare_adapter; any thread, which it keeps busy. Raises EngineClosed before start()."""
        return self._preparer.prepare_adapter(weights)

    def prepare_grammar(self, grammar: Grammar) -> PreparedGrammar:
        """See Engine.prepare_grammar; any thread, which it keeps busy. Raises EngineClosed before start()."""
        return self._preparer.prepare_grammar(grammar)

    def kept_grammar(self, grammar: Grammar) -> PreparedGrammar | None:
        """What prepare_grammar would return at once. Raises EngineClosed before start()."""
        return self._preparer.kept_grammar(grammar)

    async def add_adapter(self, prepared: PreparedAdapter) -> None:
        """Requests may name it from now on. Raises NoAdapterSlots, EngineClosed."""
        await self._ask(lambda engine: engine.add_adapter(prepared))

    async def remove_adapter(self, digest: str) -> int:
        """Let go of an adapter between two steps; returns its bytes.

        Raises UnknownAdapter, AdapterInUse, EngineClosed.
        """
        return await self._ask(lambda engine: engine.remove_adapter(digest))

    def stats(self) -> EngineStats:
        """Figures of a moment ago; exact while nothing runs."""
        return EngineStats() if self._thread is None else self._thread.stats

    def adapters(self) -> dict[str, AdapterInfo]:
        """Added adapters, as of a moment ago; exact while nothing runs."""
        return {} if self._thread is None else dict(self._thread.adapters)

    @property
    def max_model_len(self) -> int:
        """Most tokens of prompt and completion together; 0 before start()."""
        return 0 if self._thread is None else self._thread.max_model_len

    @property
    def healthy(self) -> bool:
        """Started, not closed, and not failing step after step."""
        return self._thread is not None and self._thread.healthy

    @property
    def _preparer(self) -> Preparer:
        if self._thread is None or self._thread.preparer is None:
            raise EngineClosed("the engine is not started; it prepares nothing")
        return self._thread.preparer

    async def _take_in(self, request: Request, action: Callable[[Engine], None]) -> None:
        try:
            await self._ask(action)
        except asyncio.CancelledError:
            self.abort(request.id)
            raise

    async def _ask(self, action: Callable[[Engine], T]) -> T:
        if self._closing or self._ended is None or self._ended.done():
            raise EngineClosed("the engine is not started, or closed; it takes no commands")
        return cast(T, await self._put(action))

    def _put(self, action: Callable[[Engine], object]) -> asyncio.Future[object]:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._inbox.put(Command(action, future))
        return future
