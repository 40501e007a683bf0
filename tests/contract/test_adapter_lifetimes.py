"""Adapters that come, go, fail and are waited for: what is left on the replicas afterwards is nothing."""

import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from lora.errors import NotFinite, PinsFillBudget

PROMPT = "hello"
_names = itertools.count()


@pytest.fixture
def name() -> str:
    return f"lifetime-{next(_names)}"


def resident(served: Any) -> list[dict[str, int]]:
    """On each replica: digest -> bytes in memory."""
    return [
        {digest: row["bytes"] for digest, row in replica.worker.adapters().items()}
        for replica in served.replicas
    ]


def digest_of(served: Any, name: str) -> str:
    return str(served.gateway.watcher.snapshot.adapters[name].digest)


def listed(served: Any) -> set[str]:
    with served.http as http:
        return {card["id"] for card in http.get("/v1/models").json()["data"]}


def code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


def test_fifty_names_and_one_name_fifty_times_leave_nothing(served: Any, name: str) -> None:
    served.until(served.idle)
    before, names = resident(served), listed(served)
    paths = [served.make_adapter(f"{name}-{number}", 500 + number) for number in range(50)]
    for number, path in enumerate(paths):
        assert served.load(f"{name}-{number}", path).status_code == 200
        assert listed(served) == names | {f"{name}-{number}"}
        assert served.unload(f"{name}-{number}").status_code == 200
    for path in paths:
        assert served.load(name, path, load_inplace=True).status_code == 200
        assert all(len(now) <= len(then) + 2 for now, then in zip(resident(served), before, strict=True))
    assert listed(served) == names | {name}
    served.unload(name)
    assert listed(served) == names
    served.until(lambda: resident(served) == before)
    assert len(served.gateway.admin._locks) == 0


def test_a_load_that_fails_on_one_replica_leaves_nothing_on_the_others(served: Any, name: str) -> None:
    served.until(served.idle)
    before, epoch = resident(served), served.gateway.watcher.snapshot.epoch
    served.replicas[1].loader.refusal = NotFinite("x.lora_A.weight", 3)
    try:
        refused = served.load(name, served.make_adapter(name, 560), pinned=True)
    finally:
        served.replicas[1].loader.refusal = None
    assert (refused.status_code, code(refused)) == (400, "not_finite")
    served.until(lambda: resident(served) == before)
    assert served.gateway.watcher.snapshot.epoch == epoch
    assert name not in listed(served)


def test_a_pin_that_one_replica_has_no_room_for_is_refused_by_all(
    served: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.load(name, served.make_adapter(name, 561))
    digest, before = digest_of(served, name), resident(served)

    async def refuse(digest: str, *, force: bool) -> None:
        raise PinsFillBudget(digest, 10, 20, 25)

    monkeypatch.setattr(served.replicas[1].residency, "pin", refuse)
    with served.http as http:
        headers = {"authorization": "Bearer root"}
        refused = http.post(f"/v1/adapters/{name}/pin", headers=headers)
    assert (refused.status_code, code(refused)) == (409, "pins_fill_memory")
    assert not served.gateway.watcher.snapshot.adapters[name].pinned
    assert not any(replica.worker.adapters()[digest]["pinned"] for replica in served.replicas)
    refused = served.load(f"{name}-pinned", served.make_adapter(f"{name}-pinned", 562), pinned=True)
    assert (refused.status_code, code(refused)) == (409, "pins_fill_memory")
    assert f"{name}-pinned" not in listed(served)
    served.until(lambda: resident(served) == before)


@pytest.fixture
def slow(served: Any) -> Iterator[None]:
    """Steps that take long enough for something to happen in the middle of a stream."""
    for replica in served.replicas:
        replica.runner.before_run = lambda plan: time.sleep(0.01)
    yield
    for replica in served.replicas:
        replica.runner.before_run = None


def endless(client: openai.OpenAI, model: str) -> Any:
    return client.completions.create(
        model=model, prompt=PROMPT, max_tokens=300, stream=True, extra_body={"ignore_eos": True}
    )


def test_at_most_two_versions_are_there_during_a_swap_and_one_when_the_stream_has_ended(
    served: Any, slow: None, name: str
) -> None:
    served.load(name, served.make_adapter(name, 563))
    first = digest_of(served, name)
    with served.client as client:
        stream = endless(client, name)
        next(stream)
        served.load(name, served.make_adapter(f"{name}-new", 564), load_inplace=True)
        second = digest_of(served, name)
        holders = [now.keys() & {first, second} for now in resident(served)]
        assert sorted(map(len, holders)) == [1, 2]
        assert all(second in held for held in holders)
        stream.close()
    served.until(lambda: all(now.keys() & {first, second} == {second} for now in resident(served)))


def test_memory_falls_when_the_last_stream_of_an_unloaded_adapter_ends_and_nobody_waits_for_it(
    served: Any, slow: None, name: str
) -> None:
    served.load(name, served.make_adapter(name, 565))
    digest = digest_of(served, name)
    with served.client as client:
        stream = endless(client, name)
        next(stream)
        assert served.unload(name).status_code == 200
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model=name, prompt=PROMPT)
        assert any(digest in now for now in resident(served))
        assert served.load(f"{name}-other", served.make_adapter(f"{name}-other", 566)).status_code == 200
        assert served.load(name, served.make_adapter(f"{name}-again", 567)).status_code == 200
        assert any(digest in now for now in resident(served))
        stream.close()
    served.until(lambda: not any(digest in now for now in resident(served)))


def leave(served: Any, body: dict[str, Any], when: Any) -> None:
    """Send a request, and hang up once `when` holds."""
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection((served.config.host, served.config.port)) as connection:
        connection.sendall(head.encode() + content)
        served.until(when)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_while_its_adapter_loads_leaves_nothing(
    served: Any, name: str, stream: bool
) -> None:
    served.load(name, served.make_adapter(name, 568 + stream))
    digest = digest_of(served, name)
    gate = threading.Event()
    for replica in served.replicas:
        served.run(replica.residency.unload(digest))
        replica.loader.gates[digest] = gate
    body = {"model": name, "prompt": PROMPT, "max_tokens": 200, "stream": stream}
    try:
        leave(
            served,
            body,
            lambda: any(row["waiting"] for one in served.replicas for row in one.worker.adapters().values()),
        )
        served.until(
            lambda: (
                not any(row["waiting"] for one in served.replicas for row in one.worker.adapters().values())
            )
        )
    finally:
        gate.set()
        for replica in served.replicas:
            del replica.loader.gates[digest]
    served.until(served.idle)
    with served.client as client:
        made = client.completions.create(model=name, prompt=PROMPT, max_tokens=16, seed=1)
    assert made.choices[0].text == served.expected(PROMPT, 16, seed=1, adapter=digest)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_in_the_middle_lets_go_of_its_adapter(
    served: Any, slow: None, name: str, stream: bool
) -> None:
    served.load(name, served.make_adapter(name, 570 + stream))
    digest = digest_of(served, name)
    served.until(served.idle)
    body = {"model": name, "prompt": PROMPT, "max_tokens": 400, "ignore_eos": True, "stream": stream}
    leave(served, body, lambda: any(one.engine.stats().running for one in served.replicas))
    served.until(served.idle)
    served.unload(name)
    served.until(lambda: not any(digest in now for now in resident(served)))
