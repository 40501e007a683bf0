"""The statements that the demonstration types: those of the manual, with values that cannot break out."""

from __future__ import annotations

import pytest

from noria.demo import psql


def test_a_promotion_is_one_update() -> None:
    update = "UPDATE serve.adapter SET status = 'prod' WHERE id = 'assistant-v1';"
    assert psql.promotion("assistant-v1", None) == update


def test_a_recorded_reason_holds_for_its_transaction_only() -> None:
    lines = psql.promotion("assistant-v1", "it's inconclusive").splitlines()
    assert lines[0] == "BEGIN;"
    assert lines[1] == "SET LOCAL noria.override_reason = 'it''s inconclusive';"
    assert lines[2].startswith("UPDATE serve.adapter")
    assert lines[3] == "COMMIT;"


@pytest.mark.parametrize(
    ("text", "expected"), [("plain", "'plain'"), ("it's", "'it''s'"), ("a\\b", " E'a\\\\b'"), ("", "''")]
)
def test_a_value_becomes_a_string_constant(text: str, expected: str) -> None:
    assert psql.literal(text) == expected


def test_the_provenance_query_names_its_request() -> None:
    assert "obs.provenance('0199') LIMIT 6" in psql.provenance("0199", 6)
