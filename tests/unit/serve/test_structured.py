"""What a body says of the form of its answer becomes one grammar, or is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from engine.grammar import Grammar
from serve.errors import BadRequest, InvalidField, UnsupportedParameter
from serve.protocol.chat import parse_chat
from serve.protocol.completions import parse_completion
from serve.protocol.sampling import GenerationBody, Wanted, to_sampling

SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
NAMED = {"name": "thing", "schema": SCHEMA}


@pytest.fixture(params=["chat", "completions"])
def parse(request: pytest.FixtureRequest) -> Callable[[dict[str, Any]], GenerationBody]:
    if request.param == "chat":
        chat = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        return lambda change: parse_chat(chat | change)
    return lambda change: parse_completion({"model": "m", "prompt": "x", **change})


Parse = Callable[[dict[str, Any]], GenerationBody]


@pytest.mark.parametrize(
    ("change", "kind", "value", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "json_schema", {"type": "object"}, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": NAMED | {"strict": False}}},
            "json_schema",
            SCHEMA,
            "response_format.json_schema.schema",
        ),
        ({"structured_outputs": {"json": SCHEMA}}, "json_schema", SCHEMA, "structured_outputs.json"),
        (
            {"structured_outputs": {"json": json.dumps(SCHEMA), "regex": None}},
            "json_schema",
            SCHEMA,
            "structured_outputs.json",
        ),
        ({"structured_outputs": {"choice": ["a", "b"]}}, "choice", ["a", "b"], "structured_outputs.choice"),
        (
            {"structured_outputs": {"json_object": True}},
            "json_schema",
            {"type": "object"},
            "structured_outputs.json_object",
        ),
    ],
)
def test_forms_become_grammars(
    parse: Parse, change: dict[str, Any], kind: str, value: Any, param: str
) -> None:
    grammar = to_sampling(parse(change), Wanted(5, None), ()).grammar
    assert grammar is not None
    assert (grammar.kind, json.loads(grammar.text), grammar.param) == (kind, value, param)
    assert list(json.loads(grammar.text)) == list(value)


@pytest.mark.parametrize(("kind", "engines"), [("regex", "regex"), ("grammar", "lark")])
def test_texts_are_handed_on_as_they_are(parse: Parse, kind: str, engines: Any) -> None:
    body = parse({"structured_outputs": {kind: "[a-z]"}, "response_format": {"type": "text"}})
    assert body.grammar == Grammar(engines, "[a-z]")


def test_free_text_has_no_grammar(parse: Parse) -> None:
    assert parse({}).grammar is None
    assert parse({"response_format": {"type": "text"}}).grammar is None


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"response_format": "json_object"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "structural_tag"}}, "response_format.type"),
        ({"response_format": {"type": "text", "other": 1}}, "response_format.other"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_object", "json_schema": NAMED}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}},
            "response_format.json_schema.name",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": NAMED | {"schema": "{}"}}},
            "response_format.json_schema.schema",
        ),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"json": None}}, "structured_outputs"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object"),
        ({"structured_outputs": {"json": ""}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": [1]}}, "structured_outputs.json"),
        ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex"),
        ({"structured_outputs": {"grammar": "a" * (1 << 20)}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": ["a", ""]}}, "structured_outputs.choice[1]"),
        ({"structured_outputs": {"choice": "a"}}, "structured_outputs.choice"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"json": {}, "json_object": True}}, "structured_outputs"),
        (
            {"structured_outputs": {"regex": "a", "whitespace_pattern": " "}},
            "structured_outputs.whitespace_pattern",
        ),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
            "structured_outputs",
        ),
    ],
)
def test_odd_values_are_refused_by_name(parse: Parse, change: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidField) as refused:
        parse(change)
    assert refused.value.param == param
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("kind", ["json", "regex", "choice", "grammar"])
def test_older_names_are_refused_with_the_newer_one(parse: Parse, kind: str) -> None:
    with pytest.raises(UnsupportedParameter, match=f"structured_outputs.{kind} in its place") as refused:
        parse({f"guided_{kind}": "x"})
    assert refused.value.param == f"guided_{kind}"
    with pytest.raises(BadRequest):
        parse({f"guided_{kind}": ["x"]})
