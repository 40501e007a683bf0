"""Control calls of a replica: what gateways want of its adapters, whatever its model is served for."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from lora.ports import ResidentAdapter
from lora.residency import Residency
from serve.errors import LinkProtocolError
from serve.kept_adapters import KeptAdapters

FREE_S = 5.0
"""How long the answer to an unload waits for an adapter that no request uses; it takes a step or two."""


class AdapterInspector(Protocol):
    """The part of Inspector that is needed here. Both calls ask about an adapter that stays loaded."""

    async def changes(self, digest: str, *, force: bool) -> tuple[str, ...]: ...

    async def check(self, digest: str) -> Mapping[str, Any]: ...


class AdapterCalls:
    """Everything runs on one event loop."""

    def __init__(self, residency: Residency, inspector: AdapterInspector) -> None:
        self._residency = residency
        self._inspector = inspector
        self._kept = KeptAdapters(residency)
        self._unloads: set[asyncio.Task[int]] = set()

    async def call(self, method: str, args: list[Any]) -> Any:
        """load, check, unload, pin, keep (all that is pinned), prefetch, adapters."""
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
        """Give up the unloads that still wait."""
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


def _by_digest(rows: Iterable[ResidentAdapter]) -> dict[str, dict[str, Any]]:
    plain = [asdict(row) for row in rows]
    return {row.pop("digest"): row for row in plain}
