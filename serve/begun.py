"""What is the same of every request that is recorded: its record, and the headers that say who answers."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel

from db.rows import RequestApi, RequestRecord
from serve.caller import Caller
from serve.routing import Route

# Parts of a body that the record keeps elsewhere, or not at all.
_NOT_PARAMETERS = {
    "messages", "prompt", "input", "text_1", "text_2", "queries", "documents", "model", "stream",
    "stream_options", "user", "safety_identifier",
}  # fmt: skip


def begun(
    api: RequestApi,
    caller: Caller,
    route: Route,
    body: BaseModel,
    *,
    record_id: str,
    prompt_tokens: int,
    messages: Sequence[Mapping[str, Any]],
    stream: bool,
) -> RequestRecord:
    """The record of a request as it stands if this process dies now."""
    now = datetime.now(UTC)
    return RequestRecord(
        id=record_id,
        tenant=caller.tenant,
        endpoint=route.endpoint,
        requested_model=route.requested,
        base_model=route.model.name,
        base_digest=route.base_digest,
        adapter_id=route.adapter_id,
        adapter_digest=route.adapter_digest,
        assigned_adapter_id=route.assigned_adapter_id,
        variant=route.variant,
        bucket=route.bucket,
        experiment=route.experiment,
        user_key=route.key,
        parent_id=caller.parent,
        api=api,
        started_at=now,
        finished_at=now,
        finish_reason="interrupted",
        error=None,
        prompt_tokens=prompt_tokens,
        cached_tokens=0,
        completion_tokens=0,
        queue_ms=None,
        ttft_ms=None,
        duration_ms=0.0,
        sampling=_parameters(body, caller),
        stream=stream,
        source=caller.source,
        messages=[dict(message) for message in messages],
        completion="",
    )


def who_headers(caller: Caller, route: Route) -> dict[str, str]:
    """Response headers that say who answers."""
    return {
        "x-noria-request-id": caller.id,
        "x-noria-adapter": _printable(route.adapter_id or "base"),
        "x-noria-variant": route.variant,
    }


def _parameters(body: BaseModel, caller: Caller) -> dict[str, Any]:
    """What the client set, beside the prompt and who it is."""
    parameters = body.model_dump(exclude=_NOT_PARAMETERS, exclude_unset=True, by_alias=True)
    return parameters | ({"conversation": caller.conversation} if caller.conversation else {})


def _printable(text: str) -> str:
    """A header carries ASCII only; other characters are percent-encoded."""
    return quote(text, safe=" !#$&'()*+,/:;=?@[]-._~")
