"""For those who run it: /health, the liveness probe of KubeRay, and /metrics."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, PlainTextResponse, Response

from serve.gateway import Gateway


def router(gateway: Gateway) -> APIRouter:
    """Routes without authentication: they tell nothing of any request."""
    routes = APIRouter()

    @routes.get("/health")
    async def health() -> Response:
        """200 while every base model has a replica, with or without the database; else 503."""
        state = gateway.health_report()
        return JSONResponse(state, 503 if state["status"] == "unavailable" else 200)

    @routes.get("/-/healthz")
    async def alive() -> Response:
        return PlainTextResponse("success")

    @routes.get("/metrics")
    async def metrics() -> Response:
        return Response(gateway.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    return routes
