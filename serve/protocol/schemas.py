"""Bounds of the JSON Schemas that clients send: their size, and where they refer to."""

import json
from typing import Any

MAX_BYTES = 128 << 10


def check_schema(schema: dict[str, Any]) -> None:
    """Raises ValueError for a schema that is too large, or refers to another document."""
    if (size := len(json.dumps(schema, ensure_ascii=False).encode())) > MAX_BYTES:
        raise ValueError(f"it has {size} bytes; at most {MAX_BYTES} are allowed")
    _check_references(schema)


def _check_references(value: Any) -> None:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    reference = value.get("$ref") if isinstance(value, dict) else None
    if isinstance(reference, str) and not reference.startswith("#"):
        raise ValueError(f"$ref is {reference!r}; only references within the schema (#...) are allowed")
    for each in inside:
        _check_references(each)
