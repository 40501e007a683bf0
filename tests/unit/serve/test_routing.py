from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from db.rows import AdapterRow, BaseModelRow, EndpointRow, RegistryRows
from engine.config import EngineConfig
from lora.registry import RegistrySnapshot, bucket
from serve.config import ModelConfig
from serve.errors import NoReplica, UnknownModel
from serve.routing import FORCED, Router, ServedModel

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def adapter(name: str, status: str = "candidate", **changes: Any) -> AdapterRow:
    values: dict[str, Any] = {
        "id": name,
        "digest": f"sha256:{name.encode().hex():0>64}",
        "base_model": "m",
        "endpoint": None,
        "status": status,
        "traffic_pct": 0.0,
        "canary_start": None,
        "loaded": True,
        "pinned": False,
        "store_uri": "",
        "config": {},
        "bytes": 1,
        "parent": None,
        "replaced": None,
        "run_id": None,
        "created_at": NOW,
    }
    return AdapterRow(**(values | changes))


def router(*adapters: AdapterRow) -> Router:
    rows = RegistryRows(
        epoch=1,
        base_models=(
            BaseModelRow(name="m", digest="sha256:b", folder="/m", created_at=NOW),
            BaseModelRow(name="elsewhere", digest="sha256:c", folder="/e", created_at=NOW),
        ),
        endpoints=(
            EndpointRow(
                name="help", tenant="default", base_model="m", experiment="x1", anchor=None, created_at=NOW
            ),
        ),
        adapters=adapters,
    )
    config = ModelConfig(name="m", folder=Path("/m"), engine=EngineConfig(model=Path("/m")))
    models: Mapping[str, ServedModel] = {"m": ServedModel(config, cast(Any, None), cast(Any, None), 0)}
    return Router(lambda: RegistrySnapshot.from_rows(rows), models)


def test_a_base_model_answers_to_its_own_name_alone() -> None:
    route = router().route("m", "u")
    assert (route.variant, route.adapter_id, route.adapter_digest, route.base_digest) == (
        "base",
        None,
        None,
        "sha256:b",
    )
    for name in ("M", "m ", "", "m:help"):
        with pytest.raises(UnknownModel):
            router().route(name, "u")


def test_an_adapter_answers_to_its_id_while_it_is_loaded() -> None:
    route = router(adapter("a:b/c")).route("a:b/c", "u")
    assert (route.variant, route.adapter_id, route.endpoint) == ("direct", "a:b/c", None)
    with pytest.raises(UnknownModel):
        router(adapter("a", loaded=False)).route("a", "u")


def test_an_endpoint_splits_its_users_and_keeps_each_on_one_arm() -> None:
    prod = adapter("v1", "prod", endpoint="help")
    canary = adapter("v2", "canary", endpoint="help", traffic_pct=20.0, canary_start=1000)
    made = router(prod, canary)
    for number in range(300):
        key = f"user-{number}"
        route = made.route("help", key)
        place = bucket("help", "x1", key)
        assert route.bucket == place
        assert route.experiment == "x1"
        assert (route.variant, route.adapter_id) == (
            ("canary", "v2") if 1000 <= place < 3000 else ("prod", "v1")
        )


def test_a_base_model_that_is_not_served_here_has_no_replica() -> None:
    with pytest.raises(NoReplica):
        router().route("elsewhere", "u")


def test_an_adapter_of_another_base_is_marked() -> None:
    assert router(adapter("a", config={FORCED: True})).route("a", "u").forced
    assert not router(adapter("a")).route("a", "u").forced


def test_names_are_what_may_be_asked_for() -> None:
    prod = adapter("v1", "prod", endpoint="help", loaded=False)
    names = {name.name: name for name in router(prod, adapter("a")).names()}
    assert set(names) == {"m", "help", "a"}
    assert (names["help"].root, names["help"].parent) == ("v1", "m")
    assert (names["a"].kind, names["a"].parent) == ("adapter", "m")
