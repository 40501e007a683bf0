"""POST /v1/embeddings: texts to vectors, as OpenAI answers it."""

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from serve.answers.embeddings import written
from serve.answers.schema_embeddings import EmbeddingList
from serve.gateway import Gateway
from serve.protocol.embeddings import EmbeddingBody, parse_embeddings
from serve.vectors import Wish
from serve.web.body import read_asked, while_connected
from serve.web.described import JSON, VECTORS, WHO, Description

_EMBEDDINGS = Description(
    summary="A vector for each text.",
    tag="embeddings",
    body=EmbeddingBody,
    answer={JSON: EmbeddingList},
    errors=VECTORS,
    caller=True,
    headers=WHO,
)


def router(gateway: Gateway) -> APIRouter:
    """The one route."""
    routes = APIRouter()

    @routes.post("/v1/embeddings", openapi_extra=_EMBEDDINGS.extra)
    async def embeddings(request: Request) -> Response:
        caller, body = await read_asked(gateway, request, parse_embeddings)
        vectors = await while_connected(request, gateway.vectors.make(Wish.of_embeddings(body), caller))
        # Many numbers take long to write: on a thread the streams of others go on meanwhile.
        content = await asyncio.to_thread(lambda: b"".join(written(body, caller.id, vectors)))
        return Response(content, media_type=JSON, headers=vectors.headers)

    return routes
