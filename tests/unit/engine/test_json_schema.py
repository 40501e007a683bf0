"""A schema of which every keyword can be enforced passes; any other is refused by the name of what cannot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.errors import BadGrammar, GrammarTooComplex
from engine.grammar import Grammar
from engine.json_schema import MAX_DEPTH, read_schema


def read(schema: Any) -> dict[str, Any]:
    return read_schema(Grammar("json_schema", json.dumps(schema), "response_format"))


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"nullable": {"type": "string"}, "not": True}, "required": ["not"]},
        {
            "$defs": {"A": {"title": "A", "type": "integer"}},
            "anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}],
        },
        {"const": {"whatever": {"not": 1}}, "default": {"if": 1}, "examples": [{"then": 1}]},
        {"type": "array", "items": {"$ref": "#"}},
    ],
)
def test_schemas_pass(schema: dict[str, Any]) -> None:
    assert read(schema) == schema


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "string", "nullable": True}, "'nullable' at #"),
        ({"properties": {"a": {"not": {}}}}, "'not' at #/properties/a"),
        ({"items": [{"if": {}}]}, "'if' at #/items/0"),
        ({"anyOf": [{"type": "string"}, {"maxLenght": 3}]}, "'maxLenght' at #/anyOf/1"),
        ({"x-guidance": {"lenient": True}}, "'x-guidance'"),
        ({"additionalProperties": {"propertyNames": {}}}, "'propertyNames' at #/additionalProperties"),
        ({"$defs": {"A": {"uniqueItems": True}}}, "'uniqueItems' at #/\\$defs/A"),
        ({"$ref": "https://example.com/schema"}, "https://example.com/schema"),
        ({"$ref": 5}, "5"),
    ],
)
def test_what_cannot_be_enforced_is_named(schema: dict[str, Any], named: str) -> None:
    with pytest.raises(BadGrammar, match=named) as refused:
        read(schema)
    assert refused.value.param == "response_format"


@pytest.mark.parametrize("text", ["", "{", "[]", "true", '"object"', "[" * 100_000, '{"a": NaN'])
def test_no_schema_is_refused(text: str) -> None:
    with pytest.raises(BadGrammar):
        read_schema(Grammar("json_schema", text))


def test_schemas_in_schemas_are_bounded() -> None:
    def nested(depth: int) -> dict[str, Any]:
        return {"type": "array", "items": nested(depth - 1)} if depth > 1 else {"type": "string"}

    assert read(nested(MAX_DEPTH))
    with pytest.raises(GrammarTooComplex, match=str(MAX_DEPTH)):
        read(nested(MAX_DEPTH + 1))
