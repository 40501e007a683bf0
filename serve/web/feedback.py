"""POST /v1/feedback: one act of feedback, acknowledged once the spool has it."""

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from db.rows import FeedbackRecord
from serve.answers.schema_admin import Feedback
from serve.errors import SpoolFull
from serve.gateway import Gateway
from serve.protocol.admin import FeedbackBody, parse_feedback
from serve.web.body import read_asked
from serve.web.described import JSON, Description

_FEEDBACK = Description(
    summary="One act of feedback on one answer.",
    tag="feedback",
    body=FeedbackBody,
    status=202,
    answer={JSON: Feedback},
    errors=(SpoolFull,),
    caller=True,
)


def router(gateway: Gateway) -> APIRouter:
    """The one route."""
    routes = APIRouter()

    @routes.post("/v1/feedback", status_code=202, openapi_extra=_FEEDBACK.extra)
    async def feedback(request: Request) -> dict[str, Any]:
        caller, body = await read_asked(gateway, request, parse_feedback)
        record = FeedbackRecord(
            id=caller.id,
            tenant=caller.tenant,
            request_id=body.request_id,
            kind=body.kind,
            value=body.value,
            text=body.text,
            actor=body.user or caller.user or "anonymous",
            idempotency_key=body.idempotency_key,
            at=datetime.now(UTC),
        )
        gateway.keeper.feedback(record)
        gateway.metrics.feedback.labels(body.kind).inc()
        return {"id": record.id, "object": "feedback", "request_id": record.request_id, "kind": record.kind}

    return routes
