"""Server-sent events as OpenAI clients read them. Knows nothing of what is inside an event."""

import json
from collections.abc import Mapping
from typing import Any

DONE = b"data: [DONE]\n\n"
HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


def event(payload: Mapping[str, Any]) -> bytes:
    """One event; JSON keeps the data on one line, so no text of a model can break the framing."""
    return (
        b"data: "
        + json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        + b"\n\n"
    )
