"""Server-sent events as OpenAI clients read them. Knows nothing of what is inside an event."""

import json
import secrets
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring
from typing import Any

DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"
"""What readers skip; it keeps proxies from closing a stream that has nothing to say yet."""
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


def named(payload: Mapping[str, Any]) -> bytes:
    """One event under the name that its payload has as `type`."""
    return f"event: {payload['type']}\n".encode() + event(payload)


class Template:
    """Events that differ in one text only.

    payload_of: the payload for a text, which it holds once, as a string of its own.
    """

    def __init__(self, payload_of: Callable[[str], Mapping[str, Any]]) -> None:
        mark = secrets.token_hex(16)  # drawn anew: no name in a payload can be made to look like it
        self._before, self._after = event(payload_of(mark)).split(f'"{mark}"'.encode())

    def event(self, text: str) -> bytes:
        """event(payload_of(text))."""
        return self._before + encode_basestring(text).encode("utf-8", "replace") + self._after
