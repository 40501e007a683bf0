"""The ASGI application of one gateway."""

import asyncio
import json

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from serve.gateway import Gateway
from serve.web import (
    adapters,
    batches,
    embeddings,
    feedback,
    files,
    generate,
    models,
    ops,
    responses,
    score,
    tokens,
)
from serve.web.document import document
from serve.web.failures import Failures, on_http_exception
from serve.web.layers import HeaderBound, RequestIds

_PARTS = (generate, responses, embeddings, score, tokens, models, files, batches, adapters, feedback, ops)


def make_app(gateway: Gateway) -> ASGIApp:
    """All routes, inside the layers of every request; the last one added is the outermost."""
    app = FastAPI(title="noria", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(HTTPException, on_http_exception)
    parts = routers(gateway)
    for part in parts:
        app.include_router(part)
    app.include_router(_document(parts))
    app.add_middleware(HeaderBound)
    app.add_middleware(Failures, metrics=gateway.metrics)
    app.add_middleware(RequestIds)
    return app


def routers(gateway: Gateway) -> list[APIRouter]:
    """The routes of the API by part, in the order of its documentation."""
    return [part.router(gateway) for part in _PARTS]


def _document(parts: list[APIRouter]) -> APIRouter:
    """GET /openapi.json, made at the first request and kept."""
    routes = APIRouter()
    made: list[bytes] = []

    @routes.get("/openapi.json")
    async def openapi() -> Response:
        if not made:
            made.append(await asyncio.to_thread(_written, parts))
        return Response(made[0], media_type="application/json")

    return routes


def _written(parts: list[APIRouter]) -> bytes:
    return json.dumps(document(parts), ensure_ascii=False).encode()
