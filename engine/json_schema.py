"""Which JSON Schemas are taken: those of which every keyword can be enforced. Knows no tokens.

The library that enforces them passes over what it does not know, and so does every JSON Schema validator. A
completion would then be valid and not what its author meant; so here such a keyword is refused by its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from engine.errors import BadGrammar, GrammarTooComplex
from engine.grammar import Grammar

MAX_DEPTH = 32
"""Schemas in schemas."""

_ENFORCED = {
    "type", "const", "enum", "anyOf", "allOf", "oneOf", "$ref",
    "properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties",
    "items", "prefixItems", "additionalItems", "minItems", "maxItems",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "pattern", "format",
}  # fmt: skip
_SAY_NOTHING = {
    "$schema", "$id", "$comment", "$defs", "definitions", "$anchor",
    "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
    "contentEncoding", "contentMediaType", "discriminator",
}  # fmt: skip
_KNOWN = _ENFORCED | _SAY_NOTHING
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_ONE = ("additionalProperties", "additionalItems", "items")


def read_schema(grammar: Grammar) -> dict[str, Any]:
    """The schema, an object. Raises BadGrammar, GrammarTooComplex."""
    try:
        schema = json.loads(grammar.text)
    except (ValueError, RecursionError) as error:
        raise BadGrammar(grammar.param, f"it is not valid JSON: {error}") from error
    if not isinstance(schema, dict):
        raise BadGrammar(grammar.param, f"a schema is a JSON object, this is {grammar.text:.40}")
    _check(schema, grammar.param, "#", 1)
    return schema


def _check(schema: Any, param: str, place: str, depth: int) -> None:
    if not isinstance(schema, dict):
        return  # true, false, or what the compiler refuses
    if depth > MAX_DEPTH:
        raise GrammarTooComplex(param, f"more than {MAX_DEPTH} schemas in one another", f"{MAX_DEPTH} are")
    for keyword in schema:
        if keyword not in _KNOWN:
            raise BadGrammar(param, f"keyword {keyword[:80]!r} at {place[:200]} cannot be enforced")
    reference = schema.get("$ref", "#")
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise BadGrammar(
            param, f"$ref {str(reference)[:80]!r} at {place[:200]}; allowed: '#...', this schema"
        )
    for name, inner in _inner(schema):
        _check(inner, param, f"{place}/{name}", depth + 1)


def _inner(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas that a schema holds, each with its place in it."""
    for keyword in _MAPS:
        if isinstance(parts := schema.get(keyword), dict):
            yield from ((f"{keyword}/{name}", part) for name, part in parts.items())
    for keyword in (*_LISTS, *_ONE):
        part = schema.get(keyword)
        if isinstance(part, list):
            yield from ((f"{keyword}/{place}", each) for place, each in enumerate(part))
        elif part is not None:
            yield keyword, part
