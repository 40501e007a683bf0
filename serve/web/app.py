"""The ASGI application of one gateway."""

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from serve.gateway import Gateway
from serve.web import adapters, feedback, generate, models, ops, tokens
from serve.web.failures import Failures, on_http_exception


def make_app(gateway: Gateway) -> ASGIApp:
    """All routes, inside the layer that words every failure."""
    app = FastAPI(title="noria", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(HTTPException, on_http_exception)
    for part in (generate, tokens, models, adapters, feedback, ops):
        app.include_router(part.router(gateway))
    app.add_middleware(Failures, count=lambda code: gateway.metrics.errors.labels(code).inc())
    return app
