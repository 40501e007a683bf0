"""/v1/files: what clients upload for batches, and what batches answer."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from db.errors import DatabaseAway
from lora.errors import NoObject, StoreUnavailable
from serve.answers.schema_files import File, FileDeleted, FileList, file_card
from serve.answers.shared import page_of
from serve.errors import UnknownFile
from serve.files import Upload
from serve.gateway import Gateway
from serve.protocol.files import FileBody, FileQuery, parse_file, parse_file_query
from serve.web.described import FORM, JSON, Description
from serve.web.upload import read_form

OCTETS = "application/octet-stream"
_ID = {"file_id": "A file of this tenant."}
_CREATE = Description(
    summary="Upload a file of requests for a batch.",
    tag="files",
    body=FileBody,
    body_media=FORM,
    answer={JSON: File},
    errors=(DatabaseAway, StoreUnavailable),
)
_LIST = Description(
    summary="The files of this tenant.",
    tag="files",
    query=FileQuery,
    answer={JSON: FileList},
    errors=(DatabaseAway,),
)
_ONE = Description(
    summary="One file.", tag="files", path=_ID, answer={JSON: File}, errors=(UnknownFile, DatabaseAway)
)
_CONTENT = Description(
    summary="What is in a file.",
    tag="files",
    path=_ID,
    answer={OCTETS: bytes},
    errors=(UnknownFile, DatabaseAway, StoreUnavailable, NoObject),
)
_DELETE = Description(
    summary="Remove a file.",
    tag="files",
    path=_ID,
    answer={JSON: FileDeleted},
    errors=(UnknownFile, DatabaseAway),
)


def router(gateway: Gateway) -> APIRouter:
    """The routes of files."""
    routes = APIRouter()

    @routes.post("/v1/files", openapi_extra=_CREATE.extra)
    async def create(request: Request) -> dict[str, Any]:
        tenant = gateway.doorkeeper.tenant(request.headers)
        async with read_form(request, gateway.config.max_file_bytes) as (fields, content):
            body = parse_file(fields)
            return file_card(await gateway.files.create(tenant, Upload(body.file, content, body.lifetime)))

    @routes.get("/v1/files", openapi_extra=_LIST.extra)
    async def files(request: Request) -> dict[str, Any]:
        tenant = gateway.doorkeeper.tenant(request.headers)
        query = parse_file_query(request.query_params)
        rows = await gateway.files.page(tenant, query)
        return page_of([file_card(row) for row in rows], query.limit)

    @routes.get("/v1/files/{file_id}", openapi_extra=_ONE.extra)
    async def file(file_id: str, request: Request) -> dict[str, Any]:
        return file_card(await gateway.files.get(gateway.doorkeeper.tenant(request.headers), file_id))

    @routes.get("/v1/files/{file_id}/content", openapi_extra=_CONTENT.extra)
    async def content(file_id: str, request: Request) -> Response:
        row = await gateway.files.get(gateway.doorkeeper.tenant(request.headers), file_id)
        headers = {
            "content-length": str(row.bytes),
            "content-disposition": f"attachment; filename*=UTF-8''{quote(row.filename, safe='')}",
        }
        pieces = gateway.files.content(row)
        first = await anext(pieces, b"")  # a store that is away is told by a status
        return StreamingResponse(_from(first, pieces), headers=headers, media_type=OCTETS)

    @routes.delete("/v1/files/{file_id}", openapi_extra=_DELETE.extra)
    async def remove(file_id: str, request: Request) -> dict[str, Any]:
        await gateway.files.remove(gateway.doorkeeper.tenant(request.headers), file_id)
        return {"id": file_id, "object": "file", "deleted": True}

    return routes


async def _from(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece
