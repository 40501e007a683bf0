"""A JSON schema in words: types, limits and defaults as docs/api.md shows them."""

import json
from typing import Any

Schema = dict[str, Any]


def default_of(part: Schema) -> str:
    """The default as JSON; nothing where there is none, or null."""
    return f"`{json.dumps(part['default'])}`" if part.get("default") is not None else ""


def type_of(part: Schema) -> str:
    """A type with its limits, in words."""
    if "$ref" in part:
        return str(part["$ref"].rpartition("/")[2])
    if "enum" in part:
        return ", ".join(f"`{json.dumps(value)}`" for value in part["enum"])
    if "const" in part:
        return f"`{json.dumps(part['const'])}`"
    if options := part.get("anyOf") or part.get("oneOf"):
        return " or ".join(dict.fromkeys(type_of(each) for each in options if each != {"type": "null"}))
    kinds = part.get("type", "any")
    named = [kinds] if isinstance(kinds, str) else kinds
    kind = next((each for each in named if each != "null"), "null")
    if kind == "array":
        items = type_of(part["items"]) if part.get("items") else "any"
        return f"array of {items}{_limits(part)}"
    return f"{kind}{_limits(part)}"


_LIMITS = {
    "minimum": "from {}",
    "exclusiveMinimum": "above {}",
    "maximum": "to {}",
    "exclusiveMaximum": "below {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "maxItems": "at most {}",
    "maxProperties": "at most {} members",
}


def _limits(part: Schema) -> str:
    words = [says.format(_number(part[name])) for name, says in _LIMITS.items() if name in part]
    return f" ({', '.join(words)})" if words else ""


def _number(value: float) -> str:
    power = {1 << 31: "2^31", 1 << 63: "2^63", -(1 << 31): "-2^31", -(1 << 63): "-2^63"}
    return power.get(int(value), f"{value:g}") if abs(value) >= 1 << 31 else f"{value:g}"
