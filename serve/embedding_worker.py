"""What a replica that makes vectors does with a call: pin its adapter, have its texts embedded.

Who frees what: a call's pin is released when the call ends, however it does. Knows no HTTP and no Ray.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from engine.records import Request
from lora.residency import Residency
from serve.adapter_calls import AdapterCalls, AdapterInspector
from serve.errors import LinkProtocolError


class TextEngine(Protocol):
    """The part of EmbeddingEngine that is needed here."""

    async def embed(
        self, texts: Sequence[Sequence[int]], adapter: str | None = None, dimensions: int | None = None
    ) -> bytes: ...


class EmbeddingWorker:
    """The Handler of a replica's LinkServer. Everything runs on one event loop."""

    def __init__(self, engine: TextEngine, residency: Residency, inspector: AdapterInspector) -> None:
        self._engine = engine
        self._residency = residency
        self._calls = AdapterCalls(residency, inspector)

    async def add(self, request: Request, *, force: bool) -> None:
        """Gateways know what the model is served for. Raises LinkProtocolError."""
        raise LinkProtocolError("this replica makes vectors; it takes no requests for text")

    def abort(self, request_id: str, index: int | None) -> None:
        """There is nothing to stop: calls end with whoever made them."""

    async def call(self, method: str, args: list[Any]) -> Any:
        """embed: ids of texts, adapter, force, dimensions -> the vectors' bytes; else see AdapterCalls."""
        match method, args:
            case "embed", [list(texts), str() | None as adapter, bool(force), int() | None as dimensions]:
                return await self._embed(texts, adapter, force, dimensions)
        return await self._calls.call(method, args)

    def adapters(self) -> Mapping[str, Mapping[str, Any]]:
        """digest -> what is known of it here, of those in memory or on their way there."""
        return self._calls.adapters()

    async def close(self) -> None:
        """Give up the unloads that still wait."""
        await self._calls.close()

    async def _embed(
        self, texts: list[list[int]], adapter: str | None, force: bool, dimensions: int | None
    ) -> bytes:
        if adapter is None:
            return await self._engine.embed(texts, None, dimensions)
        pin = await self._residency.acquire(adapter, force=force)
        try:
            return await self._engine.embed(texts, adapter, dimensions)
        finally:
            self._residency.release(pin)
