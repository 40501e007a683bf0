"""For those who run it: /health, the liveness probe of KubeRay, and /metrics."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, PlainTextResponse, Response

from serve.answers.schema_admin import Health
from serve.gateway import Gateway
from serve.web.described import JSON, TEXT, Description

_HEALTH = Description(
    summary="Whether every base model has a replica, with or without the database.",
    tag="operation",
    answer={JSON: Health},
    also={503: Health},
    key="none",
)
_ALIVE = Description(summary="Whether this process answers.", tag="operation", answer={TEXT: str}, key="none")
_METRICS = Description(
    summary="Metrics of this gateway and its replicas, for Prometheus.",
    tag="operation",
    answer={TEXT: str},
    key="none",
)


def router(gateway: Gateway) -> APIRouter:
    """Routes without authentication: they tell nothing of any request."""
    routes = APIRouter()

    @routes.get("/health", openapi_extra=_HEALTH.extra)
    async def health() -> Response:
        """200 while every base model has a replica, with or without the database; else 503."""
        state = gateway.health_report()
        return JSONResponse(state, 503 if state["status"] == "unavailable" else 200)

    @routes.get("/-/healthz", openapi_extra=_ALIVE.extra)
    async def alive() -> Response:
        return PlainTextResponse("success")

    @routes.get("/metrics", openapi_extra=_METRICS.extra)
    async def metrics() -> Response:
        return Response(gateway.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    return routes
