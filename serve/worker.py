"""What a replica does with a request: compile its grammar, pin its adapter, give it to the engine.

The engine's events go back to whoever asked.

Who frees what: a request's pin is released when the engine reports the last event of its last choice, or
when adding it fails; until then its adapter stays in memory. Knows no HTTP and no Ray.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from engine.records import EngineStats, Request, TokenEvent
from lora.residency import Residency
from lora.residents import Pin
from serve.adapter_calls import AdapterCalls, AdapterInspector
from serve.errors import LinkProtocolError
from serve.grammar_queue import GrammarEngine, GrammarQueue
from serve.link import LinkServer
from serve.open_requests import OpenRequests

if TYPE_CHECKING:
    from engine.guidance import PreparedGrammar


class RequestEngine(GrammarEngine, Protocol):
    """The part of AsyncEngine that is needed here."""

    async def add(self, request: Request, grammar: "PreparedGrammar | None" = None) -> None: ...

    def abort(self, request_id: str, index: int | None = None) -> None: ...

    def stats(self) -> EngineStats: ...


class Worker:
    """The Handler of a replica's LinkServer. Everything runs on one event loop."""

    def __init__(self, engine: RequestEngine, residency: Residency, inspector: AdapterInspector) -> None:
        self._engine = engine
        self._residency = residency
        self._calls = AdapterCalls(residency, inspector)
        self._grammars = GrammarQueue(engine)
        self._pins: OpenRequests[Pin] = OpenRequests()
        self._adding: dict[str, asyncio.Task[Any]] = {}
        self.server: LinkServer | None = None

    async def add(self, request: Request, *, force: bool) -> None:
        """Raises what the residency, the queue of grammars and the engine raise."""
        task = asyncio.current_task()
        assert task is not None
        self._adding[request.id] = task
        try:
            grammar = request.sampling.grammar
            prepared = None if grammar is None else await self._grammars.prepare(grammar)
            if request.adapter is not None:
                pin = await self._residency.acquire(request.adapter, force=force)
                self._pins.open(request.id, request.sampling.n, pin)
            await self._engine.add(request, prepared)
        except asyncio.CancelledError:
            # Only abort() cancels: the engine may have the request already, then its last event ends it.
            self._engine.abort(request.id)
            self._release(request.id)
            raise LinkProtocolError("aborted before it was accepted") from None
        except BaseException:
            self._release(request.id)
            raise
        finally:
            del self._adding[request.id]

    def abort(self, request_id: str, index: int | None) -> None:
        """Stop a request wherever it is: waiting for grammar or adapter, in the queue, or being computed.

        index: of its choices this one alone, which the engine has begun.
        """
        task = self._adding.get(request_id)
        if task is not None and index is None:
            task.cancel()
        else:
            self._engine.abort(request_id, index)

    def sink(self, events: list[TokenEvent]) -> None:
        """The engine's events of some steps."""
        if self.server is not None:
            self.server.emit(events)
        for event in events:
            if event.finish is not None and (pin := self._pins.end_choice(event.request_id)):
                self._residency.release(pin)

    async def call(self, method: str, args: list[Any]) -> Any:
        """See AdapterCalls."""
        return await self._calls.call(method, args)

    def adapters(self) -> Mapping[str, Mapping[str, Any]]:
        """digest -> what is known of it here, of those in memory or on their way there."""
        return self._calls.adapters()

    async def close(self) -> None:
        """Give up the unloads and the grammars that still wait."""
        self._grammars.close()
        await self._calls.close()

    def _release(self, request_id: str) -> None:
        if pin := self._pins.close(request_id):
            self._residency.release(pin)
