"""POST /v1/chat/completions and /v1/completions: one body, one answer, whole or streamed."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.errors import NoChatTemplate
from serve import sse
from serve.answers.events import Events, Format
from serve.answers.schema_chat import ChatCompletion, ChatCompletionChunk
from serve.answers.schema_text import Completion, CompletionChunk
from serve.answers.shared import takes_long, usage
from serve.conductor import Performance
from serve.gateway import Gateway
from serve.generation import merged, start_all
from serve.metrics import Metrics
from serve.protocol.chat import ChatBody, parse_chat
from serve.protocol.completions import CompletionBody, parse_completion
from serve.web.body import read_asked, while_connected
from serve.web.described import EVENTS, JSON, MODEL, WHO, Description
from serve.web.failures import noted
from serve.web.stream import EventStream
from serve.whole import whole

_CHAT = Description(
    summary="Go on with a conversation.",
    tag="chat",
    body=ChatBody,
    answer={JSON: ChatCompletion, EVENTS: ChatCompletionChunk},
    errors=(*MODEL, NoChatTemplate),
    caller=True,
    headers=WHO,
)
_COMPLETION = Description(
    summary="Go on with one or more texts.",
    tag="completions",
    body=CompletionBody,
    answer={JSON: Completion, EVENTS: CompletionChunk},
    errors=MODEL,
    caller=True,
    headers=WHO,
)


def router(gateway: Gateway) -> APIRouter:
    """The two routes of one gateway."""
    routes = APIRouter()

    @routes.post("/v1/chat/completions", openapi_extra=_CHAT.extra)
    async def chat(request: Request) -> Response:
        caller, body = await read_asked(gateway, request, parse_chat)
        return await _answer(gateway, request, await gateway.conductor.chat(body, caller), body.stream)

    @routes.post("/v1/completions", openapi_extra=_COMPLETION.extra)
    async def complete(request: Request) -> Response:
        caller, body = await read_asked(gateway, request, parse_completion)
        return await _answer(gateway, request, await gateway.conductor.complete(body, caller), body.stream)

    return routes


async def _answer(
    gateway: Gateway, request: Request, performance: Performance[Format], stream: bool
) -> Response:
    """A stream begins only once the replica has taken all choices, so a refusal still has its status."""
    if stream:
        await while_connected(request, start_all(performance.generations))
        return EventStream(
            _events(performance, gateway.metrics),
            performance.headers,
            performance.close,
            keep_alive_s=gateway.config.keep_alive_s,
        )
    write = partial(JSONResponse, headers=performance.headers)
    return await while_connected(request, whole(performance, write))


async def _events(performance: Performance[Format], metrics: Metrics) -> AsyncGenerator[bytes, None]:
    """The events of a stream; a failure in the middle becomes an event, and the stream ends in order."""
    generations = performance.generations
    events = Events(performance.format, lambda: usage(generations))
    async with contextlib.aclosing(merged(generations)) as pieces:
        try:
            if part := events.opening(performance.choices):
                yield part
            async for piece in pieces:
                long = piece.prompt_logprobs is not None and takes_long([piece])
                if part := await asyncio.to_thread(events.of, piece) if long else events.of(piece):
                    yield part
            yield events.closing() + sse.DONE
        except Exception as error:  # the status line has gone out: an event is the only way left to say it
            yield sse.event(noted(error, metrics).body) + sse.DONE
