"""kill -9 in mid-traffic: clients are told, the platform recovers by itself, no acknowledged record goes."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

import db.feedback
import db.requests

PROMPT = "The river runs"
FAILURES = (openai.APIConnectionError, openai.APIError, httpx.HTTPError)


class Traffic:
    """Clients that ask again and again, and write down what was acknowledged and what failed."""

    def __init__(self, platform: Any) -> None:
        self.platform = platform
        self.done = threading.Event()
        self.acknowledged: list[str] = []
        self.failures: list[Exception] = []

    def run(self, stream: bool) -> None:
        while not self.done.is_set():
            try:
                with self.platform.client as client:
                    answer = client.completions.create(
                        model="assistant", prompt=PROMPT, max_tokens=12, stream=stream
                    )
                    self.acknowledged.append((list(answer)[-1] if stream else answer).id)
            except FAILURES as error:
                self.failures.append(error)
                time.sleep(0.2)


def rows_of(platform: Any, ids: list[str]) -> list[dict[str, Any]]:
    found = [db.requests.get(platform.database, each.removeprefix("cmpl-")) for each in ids]
    return [row for row in found if row is not None]


def under_traffic(platform: Any, pool: ThreadPoolExecutor, deployment: str) -> Traffic:
    """Kill a process while clients ask, and wait until they are served again."""
    traffic = Traffic(platform)
    clients = [pool.submit(traffic.run, number % 2 == 0) for number in range(6)]
    platform.until(lambda: len(traffic.acknowledged) >= 6)
    old = platform.pid(deployment)
    platform.kill(deployment)
    platform.until(lambda: platform.pid(deployment) != old and platform.healthy())
    served = len(traffic.acknowledged)
    platform.until(lambda: len(traffic.acknowledged) >= served + 6)
    traffic.done.set()
    for client in clients:
        client.result(120)
    return traffic


def all_recorded(platform: Any, traffic: Traffic) -> None:
    wanted = list(traffic.acknowledged)
    rows = platform.until(lambda: len(found := rows_of(platform, wanted)) == len(wanted) and found)
    assert {row["finish_reason"] for row in rows} <= {"stop", "length"}


def test_a_killed_replica_comes_back_with_its_adapters(platform: Any, pool: ThreadPoolExecutor) -> None:
    platform.load("survivor", 31)
    platform.load("held", 32, pinned=True)
    before = platform.text("survivor", PROMPT)
    traffic = under_traffic(platform, pool, "Engine-smollm2-135m")
    assert traffic.failures
    platform.until(lambda: platform.adapters()["held"]["residency"][0]["pinned"], 30)
    assert platform.text("survivor", PROMPT) == before
    all_recorded(platform, traffic)


def test_a_stream_learns_that_its_replica_was_killed(platform: Any) -> None:
    with platform.client as client:
        stream = client.completions.create(
            model="assistant", prompt=PROMPT, max_tokens=400, stream=True, extra_body={"ignore_eos": True}
        )
        first = next(stream)
        platform.kill("Engine-smollm2-135m")
        with pytest.raises(openai.APIError) as caught:
            list(stream)
    assert caught.value.code == "replica_lost"
    row = platform.until(lambda: rows_of(platform, [first.id]))[0]
    assert row["finish_reason"] == "error"
    assert row["completion"].startswith(first.choices[0].text)
    platform.until(platform.healthy)
    assert platform.text("assistant", PROMPT)


def test_a_killed_gateway_comes_back_and_loses_no_record(platform: Any, pool: ThreadPoolExecutor) -> None:
    with platform.client as client:
        stream = client.completions.create(
            model="assistant", prompt=PROMPT, max_tokens=400, stream=True, extra_body={"ignore_eos": True}
        )
        cut = next(stream).id
        acts = [
            httpx.post(f"{platform.url}/v1/feedback", json={"request_id": cut, "kind": "thumbs", "value": 1})
            for _ in range(5)
        ]
        traffic = under_traffic(platform, pool, "Gateway")
        with pytest.raises((openai.APIConnectionError, httpx.HTTPError)):
            list(stream)
    assert traffic.failures
    all_recorded(platform, traffic)
    row = platform.until(lambda: rows_of(platform, [cut]))[0]
    assert row["finish_reason"] == "interrupted"
    stored = platform.until(lambda: db.feedback.history(platform.database, cut.removeprefix("cmpl-")))
    assert {act.id for act in stored} == {answer.json()["id"] for answer in acts}


def test_a_killed_directory_stops_nobody(platform: Any) -> None:
    old = platform.pid("Directory")
    platform.kill("Directory")
    for _ in range(5):
        assert platform.text("assistant", PROMPT, 4)
    platform.until(lambda: platform.pid("Directory") != old and platform.healthy())


def test_serving_goes_on_while_the_database_is_away_and_the_instance_brings_it_back(platform: Any) -> None:
    with platform.database_away():
        answer = platform.ask("assistant", PROMPT, 4)
        act = httpx.post(
            f"{platform.url}/v1/feedback", json={"request_id": answer.id, "kind": "comment", "text": "kept"}
        )
        assert act.status_code == 202
        assert platform.admin("unload", lora_name="survivor").status_code == 503
        platform.until(lambda: platform.health()["status"] == "degraded")
        assert not platform.health()["database"]["ok"]
        assert platform.text("assistant", PROMPT, 4)
    platform.until(platform.healthy)
    assert platform.until(lambda: rows_of(platform, [answer.id]))[0]["finish_reason"] == "length"
    (stored,) = platform.until(
        lambda: db.feedback.history(platform.database, answer.id.removeprefix("cmpl-"))
    )
    assert stored.text == "kept"
