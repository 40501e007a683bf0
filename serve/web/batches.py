"""/v1/batches: a file of requests is answered in the background, and its answers become a file."""

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

import db.batches
from db.database import Database
from db.errors import Conflict, DatabaseAway, NotFound
from db.rows import BatchRow, NewBatch
from serve.answers.schema_batches import Batch, BatchList, batch_card
from serve.answers.shared import page_of
from serve.caller import Caller
from serve.errors import InvalidField, UnknownBatch, UnknownFile
from serve.gateway import Gateway
from serve.protocol.batches import BatchBody, BatchQuery, parse_batch, parse_batch_query
from serve.protocol.files import may_be_id
from serve.web.body import read_asked
from serve.web.described import JSON, Description

WINDOW_S = 86_400.0
_ID = {"batch_id": "A batch of this tenant."}
_CREATE = Description(
    summary="Run a file of requests in the background.",
    tag="batches",
    body=BatchBody,
    answer={JSON: Batch},
    errors=(UnknownFile, DatabaseAway),
    caller=True,
)
_LIST = Description(
    summary="The batches of this tenant.",
    tag="batches",
    query=BatchQuery,
    answer={JSON: BatchList},
    errors=(DatabaseAway,),
)
_ONE = Description(
    summary="One batch, and how far it is.",
    tag="batches",
    path=_ID,
    answer={JSON: Batch},
    errors=(UnknownBatch, DatabaseAway),
)
_CANCEL = Description(
    summary="End a batch with the answers that are there.",
    tag="batches",
    path=_ID,
    answer={JSON: Batch},
    errors=(UnknownBatch, Conflict, DatabaseAway),
)


def router(gateway: Gateway) -> APIRouter:
    """The routes of batches."""
    routes = APIRouter()

    @routes.post("/v1/batches", openapi_extra=_CREATE.extra)
    async def create(request: Request) -> dict[str, Any]:
        caller, body = await read_asked(gateway, request, parse_batch)
        row = await _create(gateway, body, caller)
        gateway.desk.wake()
        return batch_card(row)

    @routes.get("/v1/batches", openapi_extra=_LIST.extra)
    async def batches(request: Request) -> dict[str, Any]:
        tenant = gateway.doorkeeper.tenant(request.headers)
        query = parse_batch_query(request.query_params)
        if query.after is not None:
            await _check_after(gateway, tenant, query.after)
        rows = await asyncio.to_thread(
            lambda: db.batches.page(gateway.database, tenant, limit=query.limit + 1, after=query.after)
        )
        return page_of([batch_card(row) for row in rows], query.limit)

    @routes.get("/v1/batches/{batch_id}", openapi_extra=_ONE.extra)
    async def batch(batch_id: str, request: Request) -> dict[str, Any]:
        tenant = gateway.doorkeeper.tenant(request.headers)
        return batch_card(await _known(db.batches.get, gateway, tenant, batch_id))

    @routes.post("/v1/batches/{batch_id}/cancel", openapi_extra=_CANCEL.extra)
    async def cancel(batch_id: str, request: Request) -> dict[str, Any]:
        tenant = gateway.doorkeeper.tenant(request.headers)
        row = await _known(db.batches.cancel, gateway, tenant, batch_id)
        gateway.desk.cancel(batch_id)
        return batch_card(row)

    return routes


async def _create(gateway: Gateway, body: BatchBody, caller: Caller) -> BatchRow:
    try:
        file = await gateway.files.get(caller.tenant, body.input_file_id)
    except UnknownFile as error:
        error.param = "input_file_id"
        raise
    if file.purpose != "batch":
        raise InvalidField(
            f"input_file_id is a file for {file.purpose!r}; allowed: one for 'batch'", "input_file_id"
        )
    kept = body.output_expires_after
    new = NewBatch(
        id=f"batch_{caller.id.replace('-', '')}",
        tenant=caller.tenant,
        endpoint=body.endpoint,
        input_file_id=body.input_file_id,
        completion_window=body.completion_window,
        metadata=body.metadata,
        output_seconds=None if kept is None else kept.seconds,
        source=caller.source,
        user_key=caller.user,
        conversation=caller.conversation,
        window_s=WINDOW_S,
    )
    return await asyncio.to_thread(db.batches.create, gateway.database, new)


async def _known(
    work: Callable[[Database, str, str], BatchRow], gateway: Gateway, tenant: str, batch_id: str
) -> BatchRow:
    """What `work` does with a batch of the tenant. Raises UnknownBatch, and what else `work` raises."""
    if not may_be_id(batch_id):
        raise UnknownBatch(batch_id)
    try:
        return await asyncio.to_thread(work, gateway.database, tenant, batch_id)
    except NotFound as error:
        raise UnknownBatch(batch_id) from error


async def _check_after(gateway: Gateway, tenant: str, after: str) -> None:
    try:
        await _known(db.batches.get, gateway, tenant, after)
    except UnknownBatch as error:
        raise InvalidField(f"after: {error}", "after") from error
