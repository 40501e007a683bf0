"""Rows of traffic: requests, feedback and consent."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from db.rows.words import FeedbackKind, Finish, Json, RequestApi, RequestSource, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One served request. `id` is a UUIDv7: the week of the row is read from it.

    `assigned_adapter_id` is what the split chose, `adapter_id`/`adapter_digest` what really answered
    (None: the base model). `messages` is the chat, or [{"role": "prompt", "content": ...}] for a
    plain completion, or {"role": "input", "content": ...} for each text that was made a vector.
    Times in milliseconds where the name ends in _ms.
    """

    id: str
    tenant: str
    endpoint: str | None
    requested_model: str
    base_model: str
    base_digest: str
    adapter_id: str | None
    adapter_digest: str | None
    assigned_adapter_id: str | None
    variant: Variant
    bucket: int | None
    experiment: str | None
    user_key: str
    parent_id: str | None
    api: RequestApi
    started_at: datetime
    finished_at: datetime
    finish_reason: Finish
    error: str | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    queue_ms: float | None
    ttft_ms: float | None
    duration_ms: float
    sampling: Json
    stream: bool
    source: RequestSource
    messages: Sequence[Json]
    completion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackRecord:
    """One act of feedback; a later one of the same kind on the same request wins.

    thumbs carries `value` +1 or -1, edit and comment carry `text`, regenerate carries neither.
    """

    id: str
    tenant: str
    request_id: str
    kind: FeedbackKind
    value: int | None
    text: str | None
    actor: str
    idempotency_key: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentRow:
    """`user_key` None speaks for the whole tenant."""

    id: str
    tenant: str
    user_key: str | None
    action: Literal["granted", "withdrawn"]
    actor: str
    at: datetime
