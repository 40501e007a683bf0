from pathlib import Path
from typing import Any

import pytest

from serve.apidoc import page
from serve.gateway import Gateway
from serve.web.app import routers
from serve.web.document import document

PAGE = Path(__file__).parents[3] / "docs" / "api.md"


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return document(routers(Gateway.__new__(Gateway)))  # no route is called


def test_the_page_is_made_of_the_code(made: dict[str, Any]) -> None:
    """`python -m serve.apidoc > docs/api.md` makes it anew."""
    assert PAGE.read_text(encoding="utf-8") == page(made)


def test_every_parameter_says_what_it_does(made: dict[str, Any]) -> None:
    schemas = made["components"]["schemas"]
    bodies = {
        content["schema"]["$ref"].rpartition("/")[2]
        for methods in made["paths"].values()
        for each in methods.values()
        for content in each.get("requestBody", {}).get("content", {}).values()
    }
    silent = [
        f"{body}.{name}"
        for body in sorted(bodies)
        for name, part in schemas[body]["properties"].items()
        if not part.get("description")
    ]
    assert silent == []
