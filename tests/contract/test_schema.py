"""schemathesis over the OpenAPI document: what it says is what the server does."""

from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from serve.gateway import Gateway
from serve.web.app import routers
from serve.web.document import document
from tests.contract.conftest import ADMIN

EXAMPLES = 10
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
DOCUMENT = document(routers(Gateway.__new__(Gateway)))  # no route of it is called
schema = schemathesis.openapi.from_dict(DOCUMENT)


def test_the_document_is_published(served: Any) -> None:
    with served.http as http:
        assert http.get("/openapi.json").json() == DOCUMENT


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_answers_are_as_documented(case: schemathesis.Case, served: Any) -> None:
    if isinstance(case.body, dict):
        _make_answerable(case.body)
    answer = case.call(base_url=served.url, headers=ADMIN)
    is_too_large = answer.status_code == 413  # a refusal too, which the check of refusals does not know
    rejection = [checks.negative_data_rejection] if is_too_large else []
    case.validate_response(answer, checks=CHECKS, excluded_checks=rejection)


def _make_answerable(body: dict[str, Any]) -> None:
    """Names and numbers that fit their types become such that something is generated, and soon ended."""
    if isinstance(body.get("model"), str):
        body["model"] = "base"
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
        if isinstance(body.get(name), int) and body[name] > 4:
            body[name] = 4
