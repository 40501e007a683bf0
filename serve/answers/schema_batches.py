"""Batches as clients see them: the shapes for the OpenAPI document, and how rows become them.

Times are in Unix seconds.
"""

from datetime import datetime
from typing import Any, Literal

from pydantic import with_config
from typing_extensions import TypedDict

from db.rows import BatchRow, BatchStatus
from serve.answers.schema import CLOSED


@with_config(CLOSED)
class BatchProblem(TypedDict):
    """What is wrong with the input."""

    code: str
    line: int | None
    message: str
    param: str | None


@with_config(CLOSED)
class BatchProblems(TypedDict):
    """Everything that is wrong with the input, up to a bound."""

    object: Literal["list"]
    data: list[BatchProblem]


@with_config(CLOSED)
class RequestCounts(TypedDict):
    """Requests of a batch; those neither completed nor failed are still to come, or were left out."""

    total: int
    completed: int
    failed: int


@with_config(CLOSED)
class CachedTokens(TypedDict):
    """Tokens found in the prefix cache."""

    cached_tokens: int


@with_config(CLOSED)
class ReasoningTokens(TypedDict):
    """Not counted apart."""

    reasoning_tokens: Literal[0]


@with_config(CLOSED)
class BatchUsage(TypedDict):
    """Tokens of all completed requests."""

    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


@with_config(CLOSED)
class Batch(TypedDict):
    """One batch."""

    id: str
    object: Literal["batch"]
    endpoint: str
    model: str | None
    """What all its requests ask for; null where they differ."""
    errors: BatchProblems | None
    input_file_id: str
    completion_window: str
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    expires_at: int
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    usage: BatchUsage
    metadata: dict[str, str] | None


@with_config(CLOSED)
class BatchList(TypedDict):
    """A page of batches."""

    object: Literal["list"]
    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool


def batch_card(row: BatchRow) -> dict[str, Any]:
    """A batch as clients see it."""
    return {
        "id": row.id,
        "object": "batch",
        "endpoint": row.endpoint,
        "model": row.model,
        "errors": None if row.errors is None else {"object": "list", "data": list(row.errors)},
        "input_file_id": row.input_file_id,
        "completion_window": row.completion_window,
        "status": row.status,
        "output_file_id": row.output_file_id,
        "error_file_id": row.error_file_id,
        "created_at": _seconds(row.created_at),
        "expires_at": _seconds(row.expires_at),
        "in_progress_at": _seconds(row.in_progress_at),
        "finalizing_at": _seconds(row.finalizing_at),
        "completed_at": _seconds(row.completed_at),
        "failed_at": _seconds(row.failed_at),
        "expired_at": _seconds(row.expired_at),
        "cancelling_at": _seconds(row.cancelling_at),
        "cancelled_at": _seconds(row.cancelled_at),
        "request_counts": {"total": row.total, "completed": row.completed, "failed": row.failed},
        "usage": {
            "input_tokens": row.input_tokens,
            "input_tokens_details": {"cached_tokens": row.cached_tokens},
            "output_tokens": row.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": row.input_tokens + row.output_tokens,
        },
        "metadata": row.metadata,
    }


def _seconds(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp())
