from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from serve.error_table import TABLE
from serve.gateway import Gateway
from serve.protocol.chat import ChatBody
from serve.web.app import routers
from serve.web.described import description_of
from serve.web.document import document


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return document(routers(Gateway.__new__(Gateway)))  # no route is called


def schema(made: dict[str, Any], name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}", "components": made["components"]}


def parts(value: Any) -> Iterator[Any]:
    yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(inner)


def test_every_reference_leads_somewhere(made: dict[str, Any]) -> None:
    found = {part["$ref"] for part in parts(made) if isinstance(part, dict) and "$ref" in part}
    assert found
    for reference in found:
        place: Any = made
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]


def test_every_schema_is_json_schema(made: dict[str, Any]) -> None:
    for each in made["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(each)


def test_every_route_describes_itself_and_names_its_path_parameters() -> None:
    for router in routers(Gateway.__new__(Gateway)):
        for route in router.routes:
            description = description_of(route)  # type: ignore[arg-type]
            named = {name for name in description.path if f"{{{name}" in route.path}  # type: ignore[attr-defined]
            assert named == set(description.path)
            assert route.path.count("{") == len(named)  # type: ignore[attr-defined]


def test_operations_have_names_of_their_own(made: dict[str, Any]) -> None:
    names = [each["operationId"] for path in made["paths"].values() for each in path.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("extra", "right"),
    [
        ({}, True),
        ({"temperature": None, "stop": None, "seed": None, "n": 2}, True),
        ({"stop": "a"}, True),
        ({"stop": ["a", "b"]}, True),
        ({"stop": [""]}, False),
        ({"temperature": -1}, False),
        ({"n": "2"}, False),
        ({"colour": "red"}, False),
        ({"functions": None}, True),
        ({"functions": []}, False),
        ({"service_tier": "auto"}, True),
        ({"service_tier": "flex"}, False),
    ],
)
def test_a_body_is_described_as_it_is_taken(made: dict[str, Any], extra: dict[str, Any], right: bool) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **extra}
    validator = jsonschema.Draft202012Validator(schema(made, "ChatBody"))
    assert validator.is_valid(body) == right


def test_every_parameter_that_is_not_served_is_named(made: dict[str, Any]) -> None:
    properties = made["components"]["schemas"]["ChatBody"]["properties"]
    assert set(properties) == {*ChatBody.model_fields, *ChatBody.neutral}


def test_errors_have_their_codes(made: dict[str, Any]) -> None:
    codes = made["components"]["schemas"]["ErrorDetail"]["properties"]["code"]["enum"]
    assert set(codes) == {row.code for row in TABLE.values()}
    answers = made["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert {"200", "400", "401", "404", "413", "429", "431", "500", "502", "503"} == set(answers)
    assert "queue_full" in answers["429"]["description"]
    assert "retry-after" in answers["429"]["headers"]
