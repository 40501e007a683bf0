"""What a replica does with a request: compile its grammar, pin its adapter, give it to the engine.

The engine's events go back to whoever asked.

Who frees what: a request's pin is released when the engine reports the last event of its last choice, or
when adding it fails; until then its adapter stays in memory. Knows no HTTP and no Ray.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from engine.records import EngineStats, Request, TokenEvent
from lora.ports import ResidentAdapter
from lora.residency import Residency
from lora.residents import Pin
from serve.errors import LinkProtocolError
from serve.grammar_queue import GrammarEngine, GrammarQueue
from serve.kept_adapters import KeptAdapters
from serve.link import LinkServer
from serve.open_requests import OpenRequests

if TYPE_CHECKING:
    from engine.guidance import PreparedGrammar

FREE_S = 5.0
"""How long the answer to an unload waits for an adapter that no request uses; it takes a step or two."""


class RequestEngine(GrammarEngine, Protocol):
    """The part of AsyncEngine that is needed here."""

    async def add(self, request: Request, grammar: "PreparedGrammar | None" = None) -> None: ...

    def abort(self, request_id: str, index: int | None = None) -> None: ...

    def stats(self) -> EngineStats: ...


class AdapterInspector(Protocol):
    """The part of Inspector that is needed here. Both calls ask about an adapter that stays loaded."""

    async def changes(self, digest: str, *, force: bool) -> tuple[str, ...]: ...

    async def check(self, digest: str) -> Mapping[str, Any]: ...


class Worker:
    """The Handler of a replica's LinkServer. Everything runs on one event loop."""

    def __init__(self, engine: RequestEngine, residency: Residency, inspector: AdapterInspector) -> None:
        self._engine = engine
        self._residency = residency
        self._inspector = inspector
        self._kept = KeptAdapters(residency)
        self._grammars = GrammarQueue(engine)
        self._pins: OpenRequests[Pin] = OpenRequests()
        self._adding: dict[str, asyncio.Task[Any]] = {}
        self._unloads: set[asyncio.Task[int]] = set()
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
        """Control calls: load, check, unload, pin, keep (all that is pinned), prefetch, adapters."""
        match method, args:
            case "load", [str(digest), bool(force)]:
                return await self._load(digest, force)
            case "check", [str(digest), bool(force)]:
                return await self._check(digest, force)
            case "unload", [str(digest)]:
                return await self._unload(digest)
            case "pin", [str(digest), bool(force)]:
                await self._residency.pin(digest, force=force)
            case "keep", [int(epoch), dict(wanted)]:
                return await self._kept.keep(epoch, wanted)
            case "prefetch", [str(digest), bool(force)]:
                self._residency.prefetch(digest, force=force)
            case "adapters", []:
                return _by_digest(await self._residency.listing())
            case _:
                raise LinkProtocolError(f"unknown call {method!r} with {len(args)} arguments")
        return None

    def adapters(self) -> Mapping[str, Mapping[str, Any]]:
        """digest -> what is known of it here, of those in memory or on their way there."""
        return _by_digest(self._residency.snapshot())

    async def close(self) -> None:
        """Give up the unloads and the grammars that still wait."""
        self._grammars.close()
        for task in list(self._unloads):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._unloads, return_exceptions=True)

    async def _load(self, digest: str, force: bool) -> Any:
        """Answer once the adapter is ready in memory, with its line of the listing."""
        pin = await self._residency.acquire(digest, force=force, stay=True)
        try:
            warnings = await self._inspector.changes(digest, force=force)
            return {**self.adapters()[digest], "warnings": list(warnings)}
        finally:
            self._residency.release(pin)

    async def _check(self, digest: str, force: bool) -> Mapping[str, Any]:
        """The adapter against merged weights, see SelfCheck. force: it may be one of another base."""
        pin = await self._residency.acquire(digest, force=force)
        try:
            return await self._inspector.check(digest)
        finally:
            self._residency.release(pin)

    async def _unload(self, digest: str) -> Mapping[str, int]:
        """Free the adapter once its last request has ended, for which nobody waits.

        bytes: freed, or that will be. requests: those that have to end before.
        """
        row = self._residency.row(digest)
        task = asyncio.get_running_loop().create_task(self._residency.unload(digest))
        self._unloads.add(task)
        task.add_done_callback(self._unloads.discard)
        if row is not None and row.pins + row.waiting:
            return {"bytes": row.bytes, "requests": row.pins + row.waiting}
        await asyncio.wait({task}, timeout=FREE_S)
        return {"bytes": task.result() if task.done() else 0, "requests": 0}

    def _release(self, request_id: str) -> None:
        if pin := self._pins.close(request_id):
            self._residency.release(pin)


def _by_digest(rows: Iterable[ResidentAdapter]) -> dict[str, dict[str, Any]]:
    plain = [asdict(row) for row in rows]
    return {row.pop("digest"): row for row in plain}
