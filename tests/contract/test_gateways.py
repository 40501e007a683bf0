"""Several gateways of one platform, API keys, and a gateway that ends in order."""

from typing import Any

import httpx
import openai
import pytest

import db.keys
import db.requests


def text(served: Any, model: str) -> str:
    with served.client as client:
        return str(client.completions.create(model=model, prompt="hi", max_tokens=8, seed=1).choices[0].text)


def test_a_change_through_one_gateway_holds_on_the_other_at_once(served: Any) -> None:
    with served.another() as other:
        assert served.load("shared", served.make_adapter("shared", 51)).status_code == 200
        digest = served.gateway.watcher.snapshot.adapters["shared"].digest
        for _ in range(5):
            assert text(other, "shared") == served.expected("hi", 8, seed=1, adapter=digest)
        served.load("shared", served.make_adapter("shared-new", 52), load_inplace=True)
        newer = served.gateway.watcher.snapshot.adapters["shared"].digest
        assert text(other, "shared") == served.expected("hi", 8, seed=1, adapter=newer)
        other.unload("shared")
        with pytest.raises(openai.NotFoundError):
            text(served, "shared")


def test_only_valid_keys_pass_where_keys_are_asked_for(served: Any) -> None:
    key = db.keys.create(served.database)
    body = {"model": "base", "prompt": "hi", "max_tokens": 2}

    def status(sent: str | None) -> int:
        headers = {} if sent is None else {"authorization": f"Bearer {sent}"}
        return httpx.post(f"{other.url}/v1/completions", json=body, headers=headers).status_code

    with served.another(require_api_key=True) as other:
        assert status(None) == 401
        assert status("nk-guess") == 401
        assert status(key) == 200
        assert httpx.get(f"{other.url}/v1/models").status_code == 401
        assert httpx.get(f"{other.url}/health").status_code == 200
        fresh = db.keys.create(served.database)
        served.until(lambda: status(fresh) == 200)
        db.keys.revoke(served.database, fresh)
        served.until(lambda: status(fresh) == 401)


def test_a_gateway_that_ends_in_order_leaves_its_record_behind(served: Any) -> None:
    with served.another() as other, other.client as client:
        made = client.completions.create(model="base", prompt="last words", max_tokens=2, seed=1)
        folder = other.gateway.spool.folder
    assert db.requests.get(served.database, made.id.removeprefix("cmpl-")) is not None
    assert not folder.exists()


def test_a_gateway_that_starts_without_the_database_serves_by_the_kept_registry(served: Any) -> None:
    with served.another(database_url="postgresql://nobody@127.0.0.1:1/nothing") as alone:
        with alone.client as client:
            made = client.completions.create(model="assistant", prompt="hi", max_tokens=8, seed=1)
        assert made.choices[0].text == served.expected("hi", 8, seed=1)
        health = httpx.get(f"{alone.url}/health")
        assert (health.status_code, health.json()["status"]) == (200, "degraded")
        assert health.json()["registry"]["stale_s"] > 0
        refused = alone.load("late", served.make_adapter("late", 61)).json()["error"]
        assert refused["code"] == "database_unavailable"
        assert "127.0.0.1" not in refused["message"]
    request_id = made.id.removeprefix("cmpl-")
    served.until(lambda: db.requests.get(served.database, request_id))
