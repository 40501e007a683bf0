"""What comes of a line: one line of the output file, or of the error file, in OpenAI's shape."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from serve.batches.lines import Line
from serve.error_table import ErrorAnswer


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to input line `number`, as a line of JSON; `failed` ones go to the error file."""

    number: int
    text: bytes
    failed: bool
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


def answered(line: Line, request_id: str, body: Mapping[str, Any]) -> Outcome:
    """A request that succeeded. Its usage is counted, under the names that the body's kind has for it."""
    usage = body.get("usage") or {}
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    return Outcome(
        line.number,
        _text(line, {"status_code": 200, "request_id": request_id, "body": body}, None),
        failed=False,
        input_tokens=usage.get("prompt_tokens") or usage.get("input_tokens") or 0,
        cached_tokens=details.get("cached_tokens") or 0,
        output_tokens=usage.get("completion_tokens") or usage.get("output_tokens") or 0,
    )


def refused(line: Line, request_id: str, answer: ErrorAnswer) -> Outcome:
    """A request that was refused, or failed."""
    response = {"status_code": answer.status, "request_id": request_id, "body": answer.body}
    return Outcome(line.number, _text(line, response, None), failed=True)


def left_out(line: Line, code: str, message: str) -> Outcome:
    """A request that was not made, or not to its end."""
    return Outcome(line.number, _text(line, None, {"code": code, "message": message}), failed=True)


def _text(line: Line, response: Mapping[str, Any] | None, error: Mapping[str, Any] | None) -> bytes:
    id_ = f"batch_req_{uuid4().hex}"
    made = {"id": id_, "custom_id": line.custom_id, "response": response, "error": error}
    return json.dumps(made, ensure_ascii=False).encode() + b"\n"
