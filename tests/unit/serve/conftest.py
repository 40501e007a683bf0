"""Records and small stand-ins that the tests of serve share."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from db.rows import FeedbackRecord, RequestRecord
from serve.ids import uuid7


@pytest.fixture
def request_record() -> Callable[..., RequestRecord]:
    """Make the record of a request that has just begun; keyword arguments change fields."""

    def make(**changes: Any) -> RequestRecord:
        now = datetime.now(UTC)
        values: dict[str, Any] = {
            "id": uuid7(),
            "tenant": "default",
            "endpoint": None,
            "requested_model": "base",
            "base_model": "base",
            "base_digest": "sha256:" + "0" * 64,
            "adapter_id": None,
            "adapter_digest": None,
            "assigned_adapter_id": None,
            "variant": "base",
            "bucket": None,
            "experiment": None,
            "user_key": "u",
            "parent_id": None,
            "api": "chat",
            "started_at": now,
            "finished_at": now,
            "finish_reason": "interrupted",
            "error": None,
            "prompt_tokens": 3,
            "cached_tokens": 0,
            "completion_tokens": 0,
            "queue_ms": None,
            "ttft_ms": None,
            "duration_ms": 0.0,
            "sampling": {"temperature": 0.0},
            "stream": True,
            "source": "traffic",
            "messages": [{"role": "user", "content": "hi"}],
            "completion": "",
        }
        return RequestRecord(**(values | changes))

    return make


@pytest.fixture
def feedback_record() -> Callable[..., FeedbackRecord]:
    """Make an act of feedback; keyword arguments change fields."""

    def make(**changes: Any) -> FeedbackRecord:
        values: dict[str, Any] = {
            "id": uuid7(),
            "tenant": "default",
            "request_id": uuid7(),
            "kind": "thumbs",
            "value": 1,
            "text": None,
            "actor": "u",
            "idempotency_key": None,
            "at": datetime.now(UTC),
        }
        return FeedbackRecord(**(values | changes))

    return make
