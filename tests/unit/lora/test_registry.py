"""Names, the sticky split, and what a snapshot answers."""

import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.rows import AdapterRow, BaseModelRow, EndpointRow, RegistryRows
from lora.registry import BUCKETS, RegistrySnapshot, bucket

VECTORS = Path(__file__).parents[2] / "data" / "bucket_vectors.json"
THEN = datetime(2026, 1, 1, tzinfo=UTC)
BASE = BaseModelRow(name="tiny", digest="sha256:base", folder="/m", created_at=THEN)
ENDPOINT = EndpointRow(
    name="support", tenant="default", base_model="tiny", experiment="e1", anchor=None, created_at=THEN
)


def _adapter(id: str, **fields: Any) -> AdapterRow:
    row = AdapterRow(
        id=id,
        digest=f"sha256:{id}",
        base_model="tiny",
        endpoint="support",
        status="candidate",
        traffic_pct=0.0,
        canary_start=None,
        loaded=False,
        pinned=False,
        store_uri="",
        config={},
        bytes=1,
        parent=None,
        replaced=None,
        run_id=None,
        created_at=THEN,
    )
    return replace(row, **fields)


def _rows(*adapters: AdapterRow, **fields: Any) -> RegistryRows:
    rows = RegistryRows(epoch=1, base_models=(BASE,), endpoints=(ENDPOINT,), adapters=adapters)
    return replace(rows, **fields)


def _variant(snapshot: RegistrySnapshot, name: str, key: str) -> tuple[str, str | None]:
    target = snapshot.resolve(name)
    assert target is not None
    chosen = snapshot.assign(target, key)
    return chosen.variant, chosen.adapter_id


@pytest.mark.parametrize("vector", json.loads(VECTORS.read_text())["vectors"], ids=lambda v: v["key"][:20])
def test_buckets_equal_the_golden_values(vector: dict[str, Any]) -> None:
    assert bucket(vector["endpoint"], vector["experiment"], vector["key"]) == vector["bucket"]


@given(st.text(), st.text(), st.text())
def test_a_bucket_is_in_range_and_stable_for_any_text(endpoint: str, experiment: str, key: str) -> None:
    number = bucket(endpoint, experiment, key)
    assert 0 <= number < BUCKETS
    assert number == bucket(endpoint, experiment, key)


def test_a_text_that_is_no_unicode_still_has_a_bucket() -> None:
    assert 0 <= bucket("e", "x", "\ud800") < BUCKETS


@pytest.mark.parametrize(
    "name", ["Support", "support ", "tiny:support", "support/a", "", "sha256:a", "absent"]
)
def test_names_are_opaque_and_unknown_ones_are_nothing(name: str) -> None:
    assert RegistrySnapshot.from_rows(_rows(_adapter("a", loaded=True))).resolve(name) is None


def test_an_adapter_id_goes_before_an_endpoint_before_a_base_model() -> None:
    same = replace(ENDPOINT, name="tiny")
    rows = _rows(endpoints=(ENDPOINT, same))
    target = RegistrySnapshot.from_rows(rows).resolve("tiny")
    assert target is not None
    assert target.kind == "endpoint"
    target = RegistrySnapshot.from_rows(replace(rows, adapters=(_adapter("tiny", loaded=True),))).resolve(
        "tiny"
    )
    assert target is not None
    assert target.kind == "adapter"


def test_an_adapter_answers_to_its_id_only_while_it_is_loaded() -> None:
    snapshot = RegistrySnapshot.from_rows(_rows(_adapter("a", loaded=True), _adapter("b", status="prod")))
    assert _variant(snapshot, "a", "u") == ("direct", "a")
    assert snapshot.resolve("b") is None
    assert _variant(snapshot, "support", "u") == ("prod", "b")


def test_an_endpoint_without_prod_answers_with_the_base_model() -> None:
    snapshot = RegistrySnapshot.from_rows(_rows())
    assert _variant(snapshot, "support", "u") == ("base", None)
    assert _variant(snapshot, "tiny", "u") == ("base", None)
    assert snapshot.prod_of("support") is None


def test_bucket_and_experiment_are_told_for_endpoints_only() -> None:
    snapshot = RegistrySnapshot.from_rows(_rows(_adapter("a", loaded=True, status="prod")))
    told = {}
    for name in ("support", "a", "tiny"):
        target = snapshot.resolve(name)
        assert target is not None
        chosen = snapshot.assign(target, "u")
        told[name] = (chosen.bucket, chosen.experiment)
    assert told == {"support": (bucket("support", "e1", "u"), "e1"), "a": (None, None), "tiny": (None, None)}


@given(st.integers(0, BUCKETS), st.data(), st.text())
def test_the_canary_gets_exactly_its_buckets(width: int, data: st.DataObject, key: str) -> None:
    start = data.draw(st.integers(0, BUCKETS - width))
    snapshot = RegistrySnapshot.from_rows(
        _rows(
            _adapter("p", status="prod"),
            _adapter("c", status="canary", canary_start=start, traffic_pct=width / 100),
        )
    )
    inside = start <= bucket("support", "e1", key) < start + width
    assert _variant(snapshot, "support", key) == (("canary", "c") if inside else ("prod", "p"))


def test_two_canaries_share_an_endpoint() -> None:
    snapshot = RegistrySnapshot.from_rows(
        _rows(
            _adapter("c1", status="canary", canary_start=0, traffic_pct=30.0),
            _adapter("c2", status="canary", canary_start=3000, traffic_pct=70.0),
        )
    )
    for number in range(200):
        key = str(number)
        expected = "c1" if bucket("support", "e1", key) < 3000 else "c2"
        assert _variant(snapshot, "support", key) == ("canary", expected)


def test_raising_the_share_moves_nobody_back() -> None:
    def canary_users(pct: float) -> set[str]:
        snapshot = RegistrySnapshot.from_rows(
            _rows(_adapter("c", status="canary", canary_start=2000, traffic_pct=pct))
        )
        return {str(n) for n in range(2000) if _variant(snapshot, "support", str(n))[0] == "canary"}

    shares = [canary_users(pct) for pct in (0.0, 0.5, 5.0, 20.0, 80.0)]
    assert shares[0] == set()
    assert all(small < large for small, large in itertools.pairwise(shares))


def test_blocked_adapters_give_way() -> None:
    rows = _rows(
        _adapter("p", status="prod", loaded=True),
        _adapter("c", status="canary", canary_start=0, traffic_pct=100.0, loaded=True),
    )
    canary_blocked = RegistrySnapshot.from_rows(rows, blocked={"sha256:c"})
    assert _variant(canary_blocked, "support", "u") == ("prod", "p")
    assert canary_blocked.resolve("c") is None
    blocked = RegistrySnapshot.from_rows(rows, blocked={"sha256:c", "sha256:p"})
    assert _variant(blocked, "support", "u") == ("base", None)
    assert blocked.resolve("c") is None
    assert blocked.prod_of("support") is None


@pytest.mark.parametrize(("pct", "dealt"), [(100.0, "c"), (0.0, "p")])
def test_what_the_split_dealt_is_told_also_where_the_kill_switch_makes_another_answer(
    pct: float, dealt: str
) -> None:
    rows = _rows(
        _adapter("p", status="prod", loaded=True),
        _adapter("c", status="canary", canary_start=0, traffic_pct=pct, loaded=True),
    )
    free = RegistrySnapshot.from_rows(rows)
    target = free.resolve("support")
    assert target is not None
    held = (
        RegistrySnapshot.from_rows(rows, blocked={"sha256:c"}),
        RegistrySnapshot.from_rows(rows, blocked={"sha256:c", "sha256:p"}),
    )
    for snapshot in (free, *held):
        assert snapshot.assign(target, "u").assigned_id == dealt
