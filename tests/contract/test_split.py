"""The sticky split of an endpoint, as clients and the record see it."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

import db.promotion
import db.registry
import db.requests
from lora.registry import bucket
from noria.cli import app

ENDPOINT = "split"


@pytest.fixture(scope="module")
def arms(served: Any) -> dict[str, str]:
    """An endpoint with a prod adapter and a canary at 30 %; arm -> digest."""
    db.registry.create_endpoint(served.database, ENDPOINT, "base")
    digests = {}
    for name, seed in (("v1", 41), ("v2", 42)):
        served.load(f"scratch-{name}", served.make_adapter(f"split-{name}", seed))
        digest = served.gateway.watcher.snapshot.adapters[f"scratch-{name}"].digest
        db.registry.register_adapter(
            served.database,
            id=f"{ENDPOINT}-{name}",
            digest=digest,
            base_model="base",
            endpoint=ENDPOINT,
            store_uri=digest,
            config={},
            size_bytes=1,
        )
        digests[name] = digest
    db.promotion.promote(served.database, f"{ENDPOINT}-v1", override_reason="no suites in this test")
    canary = db.promotion.start_canary(served.database, f"{ENDPOINT}-v2", 30)
    served.until(lambda: _share(served) == canary.traffic_pct)
    return digests


def _share(served: Any) -> float:
    row = served.gateway.watcher.snapshot.adapters.get(f"{ENDPOINT}-v2")
    return 0.0 if row is None else float(row.traffic_pct)


def ask(served: Any, user: str, **options: Any) -> httpx.Response:
    body = {"model": ENDPOINT, "prompt": "hello", "max_tokens": 16, "seed": 1, "user": user, **options}
    with served.http as http:
        answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer


def test_a_user_stays_on_the_arm_of_its_bucket(served: Any, arms: dict[str, str]) -> None:
    snapshot = served.gateway.watcher.snapshot
    experiment = snapshot.endpoints[ENDPOINT].experiment
    start = snapshot.adapters[f"{ENDPOINT}-v2"].canary_start
    users = [f"user-{number}" for number in range(80)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda user: ask(served, user), users * 2))
    seen: Counter[str] = Counter()
    for user, answer in zip(users * 2, answers, strict=True):
        chosen = "v2" if start <= bucket(ENDPOINT, experiment, user) < start + 3000 else "v1"
        assert answer.headers["x-noria-adapter"] == f"{ENDPOINT}-{chosen}"
        assert answer.headers["x-noria-variant"] == ("canary" if chosen == "v2" else "prod")
        made = answer.json()
        assert made["system_fingerprint"].endswith(arms[chosen][7:19])
        assert made["choices"][0]["text"] == served.expected("hello", 16, seed=1, adapter=arms[chosen])
        seen[chosen] += 1
    assert seen["v1"] > seen["v2"] > 0


def test_each_gateway_deals_the_share_that_was_asked_for(served: Any, arms: dict[str, str]) -> None:
    """1,000 users, half of them on each of two gateways, over connections that stay open."""
    users, share = [f"reader-{number}" for number in range(1000)], 0.30
    with served.another() as second:
        served.until(lambda: _share(second) == share * 100)
        dealt = [_variants(served, users[:500]), _variants(second, users[500:])]
        again = _variants(second, users[:40])
    assert again == dict(list(dealt[0].items())[:40])
    for arms_of in dealt:
        canaries = sum(variant == "canary" for variant in arms_of.values())
        assert abs(canaries - 500 * share) <= 3 * (500 * share * (1 - share)) ** 0.5


@pytest.mark.parametrize(("share", "variant"), [(0.0, "prod"), (100.0, "canary")])
def test_nobody_and_everybody_are_exact(
    served: Any, arms: dict[str, str], share: float, variant: str
) -> None:
    db.promotion.start_canary(served.database, f"{ENDPOINT}-v2", share)
    served.until(lambda: _share(served) == share)
    assert set(_variants(served, [f"all-{number}" for number in range(100)]).values()) == {variant}
    db.promotion.start_canary(served.database, f"{ENDPOINT}-v2", 30)
    served.until(lambda: _share(served) == 30)


def _variants(served: Any, users: list[str]) -> dict[str, str]:
    """user -> the arm that answered."""
    with served.http as http, ThreadPoolExecutor(8) as pool:
        body = {"model": ENDPOINT, "prompt": "hello", "max_tokens": 1}
        answers = pool.map(lambda user: http.post("/v1/completions", json=body | {"user": user}), users)
        return dict(zip(users, (answer.headers["x-noria-variant"] for answer in answers), strict=True))


def test_the_user_header_counts_where_the_body_names_nobody(served: Any, arms: dict[str, str]) -> None:
    by_body = ask(served, "ann").headers["x-noria-adapter"]
    body = {"model": ENDPOINT, "prompt": "hello", "max_tokens": 1}
    with served.http as http:
        for _ in range(3):
            answer = http.post("/v1/completions", json=body, headers={"x-noria-user": "ann"})
            assert answer.headers["x-noria-adapter"] == by_body


def test_the_record_tells_arm_bucket_and_version(served: Any, arms: dict[str, str]) -> None:
    answer = ask(served, "bob")
    request_id = answer.headers["x-noria-request-id"]
    row = served.until(lambda: db.requests.get(served.database, request_id))
    experiment = served.gateway.watcher.snapshot.endpoints[ENDPOINT].experiment
    assert row["bucket"] == bucket(ENDPOINT, experiment, "bob")
    assert row["adapter_id"] == answer.headers["x-noria-adapter"]
    assert row["variant"] == answer.headers["x-noria-variant"]
    assert row["adapter_digest"] in arms.values()


def test_a_promotion_by_sql_takes_over_and_a_rollback_gives_back(served: Any, arms: dict[str, str]) -> None:
    def answers_with(name: str) -> bool:
        return all(
            ask(served, f"u{number}", max_tokens=1).headers["x-noria-adapter"] == name for number in range(12)
        )

    db.promotion.promote(served.database, f"{ENDPOINT}-v2", override_reason="no suites in this test")
    served.until(lambda: answers_with(f"{ENDPOINT}-v2"))
    db.promotion.rollback(served.database, ENDPOINT)
    served.until(lambda: answers_with(f"{ENDPOINT}-v1"))


def operate(served: Any, *words: str) -> str:
    """What the noria command prints, in the data folder of the platform."""
    done = CliRunner().invoke(app, [*words, "--data", str(served.config.cache_root.parent)])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_kill_switch_works_without_the_database(served: Any, arms: dict[str, str]) -> None:
    prod = f"{ENDPOINT}-v1"
    with served.another(database_url="postgresql://nobody@127.0.0.1:1/nothing") as alone:
        assert ask(alone, "carl").headers["x-noria-adapter"] == prod
        operate(served, "stop", prod)
        assert prod in operate(served, "stops", "--json")
        for gateway in (alone, served):
            served.until(lambda url=gateway: ask(url, "carl").headers["x-noria-variant"] == "base")
            health = httpx.get(f"{gateway.url}/health").json()
            assert (health["status"], health["local_stops"]) == ("degraded", [arms["v1"]])
            assert "noria:local_stops 1.0" in httpx.get(f"{gateway.url}/metrics").text
        answer = ask(served, "carl")
        operate(served, "resume", arms["v1"])
        served.until(lambda: ask(alone, "carl").headers["x-noria-adapter"] == prod)
    row = served.until(lambda: db.requests.get(served.database, answer.headers["x-noria-request-id"]))
    assert (row["adapter_id"], row["assigned_adapter_id"]) == (None, prod)
    served.until(lambda: ask(served, "carl").headers["x-noria-adapter"] == prod)
    assert served.gateway.watcher.local_stops == []
