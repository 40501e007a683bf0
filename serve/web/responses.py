"""/v1/responses: a turn of a conversation, whole or streamed, and what was kept of earlier ones."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from db.errors import DatabaseAway
from engine.errors import NoChatTemplate
from serve import sse
from serve.answers.schema_responses import InputItemList, ResponseDeleted, ResponseEvent, ResponseObject
from serve.answers.shared import page_of, usage
from serve.errors import NotInBackground, PreviousResponseNotFound, ResponseNotFound
from serve.gateway import Gateway
from serve.generation import merged
from serve.protocol.responses import (
    InputItemsQuery,
    ResponseBody,
    ResponseQuery,
    parse_items_query,
    parse_response,
    parse_response_query,
)
from serve.responder import Turn
from serve.web.body import read_asked, while_connected
from serve.web.described import EVENTS, JSON, MODEL, WHO, Description
from serve.web.failures import noted
from serve.web.stream import EventStream
from serve.whole import whole_turn

_TAG = "responses"
_ID = {"response_id": "Id of a kept answer."}
_GONE = (ResponseNotFound, DatabaseAway)

_CREATE = Description(
    summary="Take a turn of a conversation, alone or on from a kept answer.",
    tag=_TAG,
    body=ResponseBody,
    answer={JSON: ResponseObject, EVENTS: ResponseEvent},
    errors=(*MODEL, NoChatTemplate, PreviousResponseNotFound, DatabaseAway),
    caller=True,
    headers=WHO,
)
_GET = Description(
    summary="A kept answer.",
    tag=_TAG,
    query=ResponseQuery,
    path=_ID,
    answer={JSON: ResponseObject},
    errors=_GONE,
)
_INPUT_ITEMS = Description(
    summary="What was handed in for a kept answer, without the turns that it went on from.",
    tag=_TAG,
    query=InputItemsQuery,
    path=_ID,
    answer={JSON: InputItemList},
    errors=_GONE,
)
_DELETE = Description(
    summary="Forget a kept answer; what went on from it can not be gone on from any more.",
    tag=_TAG,
    path=_ID,
    answer={JSON: ResponseDeleted},
    errors=_GONE,
)
_CANCEL = Description(
    summary="Refused: only an answer made in the background could be cancelled, and none are.",
    tag=_TAG,
    path=_ID,
    answer={JSON: ResponseObject},
    errors=(*_GONE, NotInBackground),
)


def router(gateway: Gateway) -> APIRouter:
    """The routes of one gateway."""
    routes = APIRouter()

    @routes.post("/v1/responses", openapi_extra=_CREATE.extra)
    async def create_response(request: Request) -> Response:
        caller, body = await read_asked(gateway, request, parse_response)
        turn = await gateway.responder.turn(body, caller)
        if not body.stream:
            answer = await while_connected(request, whole_turn(gateway.responder, turn))
            return JSONResponse(answer, headers=turn.performance.headers)
        await while_connected(request, gateway.responder.start(turn))
        return EventStream(
            _events(gateway, turn),
            turn.performance.headers,
            turn.performance.close,
            keep_alive_s=gateway.config.keep_alive_s,
        )

    _add_kept(routes, gateway)
    return routes


def _add_kept(routes: APIRouter, gateway: Gateway) -> None:
    """The routes of answers that were kept."""

    @routes.get("/v1/responses/{response_id}", openapi_extra=_GET.extra)
    async def response(response_id: str, request: Request) -> dict[str, Any]:
        tenant = gateway.doorkeeper.tenant(request.headers)
        parse_response_query(request.query_params)
        row = await gateway.kept_responses.get(tenant, response_id)
        return {**row.answer, "output": row.output_items}

    @routes.get("/v1/responses/{response_id}/input_items", openapi_extra=_INPUT_ITEMS.extra)
    async def input_items(response_id: str, request: Request) -> dict[str, Any]:
        tenant = gateway.doorkeeper.tenant(request.headers)
        query = parse_items_query(request.query_params)
        row = await gateway.kept_responses.get(tenant, response_id)
        return page_of(query.behind(row.input_items), query.limit)

    @routes.delete("/v1/responses/{response_id}", openapi_extra=_DELETE.extra)
    async def delete_response(response_id: str, request: Request) -> dict[str, Any]:
        await gateway.kept_responses.delete(gateway.doorkeeper.tenant(request.headers), response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    @routes.post("/v1/responses/{response_id}/cancel", openapi_extra=_CANCEL.extra)
    async def cancel_response(response_id: str, request: Request) -> Response:
        await gateway.kept_responses.get(gateway.doorkeeper.tenant(request.headers), response_id)
        raise NotInBackground


async def _events(gateway: Gateway, turn: Turn) -> AsyncGenerator[bytes, None]:
    """The events of a stream; a failure in the middle becomes events, and the stream ends in order."""
    generations, shape = turn.performance.generations, turn.performance.format
    async with contextlib.aclosing(merged(generations)) as pieces:
        try:
            for event in shape.opening():
                yield sse.named(event)
            async for piece in pieces:
                if part := b"".join(map(sse.named, shape.events(piece))):
                    yield part
            answer = await gateway.responder.kept(turn, shape.whole(usage(generations)))
            yield sse.named(shape.last(answer))
        except Exception as error:  # the status line has gone out: events are the only way left to say it
            yield b"".join(map(sse.named, shape.failed(noted(error, gateway.metrics))))
