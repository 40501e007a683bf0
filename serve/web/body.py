"""Reading requests: the body within its bound, and the moment the client leaves."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from serve.caller import Caller, read_caller
from serve.errors import BodyTooLarge, InvalidBody, brief
from serve.gateway import Gateway
from serve.protocol.body import read_json

Result = TypeVar("Result")
Asked = TypeVar("Asked")


async def read_object(request: Request, max_bytes: int) -> dict[str, Any]:
    """The JSON object of a request. Raises InvalidBody or BodyTooLarge, the latter before reading on."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise InvalidBody("Unsupported Media Type: Only 'application/json' is allowed")
    if (packed := request.headers.get("content-encoding", "identity").strip().lower()) != "identity":
        raise InvalidBody(f"Content-Encoding is {brief(packed)}; allowed: identity, or nothing")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise BodyTooLarge(max_bytes)
        parts.append(part)
    return read_json(b"".join(parts))


async def read_asked(
    gateway: Gateway, request: Request, parse: Callable[[Mapping[str, Any]], Asked]
) -> tuple[Caller, Asked]:
    """Who asks, and the body that `parse` makes of what was sent. A caller without a key sends no body."""
    caller = read_caller(request.headers, gateway.doorkeeper.tenant(request.headers))
    return caller, parse(await read_object(request, gateway.config.max_body_bytes))


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled when the client leaves. Raises ClientDisconnect then."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        for each in (task, watch):
            each.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(task, watch, return_exceptions=True)


async def _gone(request: Request) -> None:
    """Ends when the client leaves; the body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
