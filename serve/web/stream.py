"""A response of server-sent events that stops its source as soon as the client leaves."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from serve import sse


class EventStream(Response):
    """Sends what `source` yields, as it comes: each part is one or more whole events.

    After each `keep_alive_s` seconds of silence a comment is sent between two parts. At the end, however it
    comes, the source is closed and `at_end` called: a client may leave before the source has begun, and then
    the source itself cannot clean up.
    """

    def __init__(
        self,
        source: AsyncGenerator[bytes, None],
        headers: Mapping[str, str],
        at_end: Callable[[], None],
        *,
        keep_alive_s: float,
    ) -> None:
        super().__init__(headers={**headers, **sse.HEADERS})
        self._source = source
        self._at_end = at_end
        self._keep_alive_s = keep_alive_s
        self._spoke = 0.0
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        watch = asyncio.ensure_future(_disconnect(receive))
        try:
            await asyncio.wait({sending, watch}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            await _stopped(sending, watch)
            await self._source.aclose()
            self._at_end()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        self._spoke = time.monotonic()
        comments = asyncio.ensure_future(self._keep_alive(send))
        try:
            async for part in self._source:
                await send(_body(part))
                self._spoke = time.monotonic()
        finally:
            await _stopped(comments)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _keep_alive(self, send: Send) -> None:
        while True:
            silence = time.monotonic() - self._spoke
            if silence < self._keep_alive_s:
                await asyncio.sleep(self._keep_alive_s - silence)
            else:
                await send(_body(sse.COMMENT))
                self._spoke = time.monotonic()


def _body(part: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": part, "more_body": True}


async def _stopped(*tasks: asyncio.Future[None]) -> None:
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
