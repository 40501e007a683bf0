"""A response of server-sent events that stops its source as soon as the client leaves."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from serve import sse


class EventStream(Response):
    """Sends what `source` yields, as it comes.

    At the end, however it comes, the source is closed and `at_end` called: a client may leave before the
    source has begun, and then the source itself cannot clean up.
    """

    def __init__(
        self, source: AsyncGenerator[bytes, None], headers: Mapping[str, str], at_end: Callable[[], None]
    ) -> None:
        super().__init__(headers={**headers, **sse.HEADERS})
        self._source = source
        self._at_end = at_end
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        watch = asyncio.ensure_future(_disconnect(receive))
        try:
            await asyncio.wait({sending, watch}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, watch):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(sending, watch, return_exceptions=True)
            await self._source.aclose()
            self._at_end()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        async for part in self._source:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
