"""What holds for every request, whatever its route: an id in each answer, HEAD as GET, bounded headers."""

from collections.abc import Iterable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.errors import HeadersTooLarge
from serve.ids import uuid7

MAX_HEADER_BYTES = 64 << 10
MAX_ID_BYTES = 512

RawHeaders = Iterable[tuple[bytes, bytes]]


class RequestIds:
    """Outermost: each answer has x-request-id, the client's own or the request's.

    A HEAD is answered as a GET; the server below leaves the body out.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = _sent_id(scope["headers"])

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = sent or headers.get("x-noria-request-id") or uuid7()
            await send(message)

        read = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        await self._app(read, receive, sending)


class HeaderBound:
    """Innermost: refuses a request whose headers have more than MAX_HEADER_BYTES. Raises HeadersTooLarge."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            size = sum(len(name) + len(value) for name, value in scope["headers"])
            if size > MAX_HEADER_BYTES:
                raise HeadersTooLarge(size, MAX_HEADER_BYTES)
        await self._app(scope, receive, send)


def _sent_id(headers: RawHeaders) -> str | None:
    """The client's own id; None for one that no header of an answer may hold."""
    raw = next((value for name, value in headers if name == b"x-request-id"), b"")
    fine = 0 < len(raw) <= MAX_ID_BYTES and all(byte >= 0x20 and byte != 0x7F for byte in raw)
    return raw.decode("latin-1") if fine else None
