"""Bounds of the JSON Schemas that clients send: their size, their depth, and where they refer to."""

import json
from typing import Any

MAX_DEPTH = 32
MAX_BYTES = 128 << 10


def check_schema(schema: dict[str, Any]) -> None:
    """Raises ValueError for a schema that is too large or too deep, or refers to another document."""
    if (size := len(json.dumps(schema, ensure_ascii=False).encode())) > MAX_BYTES:
        raise ValueError(f"the schema has {size} bytes; at most {MAX_BYTES} are allowed")
    level: list[Any] = [schema]
    for _ in range(MAX_DEPTH):
        level = [inner for value in level for inner in _inside(value)]
    if level:
        raise ValueError(f"the schema is nested deeper than {MAX_DEPTH} levels, which is the most allowed")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return []
    reference = value.get("$ref")
    if isinstance(reference, str) and not reference.startswith("#"):
        raise ValueError(f"$ref is {reference!r}; only references within the schema (#...) are allowed")
    return list(value.values())
