"""Clients that leave, in every phase of a request: the engine is rid of it within a step. A full queue."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.records import Request, SamplingParams
from tests.contract.replicas import MAX_WAITING

BODY: dict[str, Any] = {"prompt": "go", "max_tokens": 400, "ignore_eos": True}

HEAD = "\r\n".join(
    [
        "POST /v1/completions HTTP/1.1",
        "host: x",
        "content-type: application/json",
        "content-length: {}",
        "",
        "",
    ]
)


class Gate:
    """Stands before the steps of all replicas: lets them run, holds them, or lets some of them through."""

    def __init__(self, served: Any) -> None:
        self._served = served
        self._open = threading.Event()
        self._open.set()
        self._allowed = 0
        self.aborts = 0

    def before_step(self, plan: Any) -> None:
        deadline = time.monotonic() + 30
        while not self._open.is_set() and self.steps > self._allowed:
            assert time.monotonic() < deadline, "held too long"
            time.sleep(0.002)

    def open(self) -> None:
        self._open.set()

    def hold(self) -> None:
        """Those that were begun may end."""
        self._allowed = self.steps
        self._open.clear()

    @property
    def steps(self) -> int:
        """Steps that were begun."""
        return sum(len(replica.runner.plans) for replica in self._served.replicas)

    def total(self, name: str) -> int:
        """A figure of the engines' accounts, of all together."""
        return sum(getattr(replica.engine.stats(), name) for replica in self._served.replicas)

    def step_until(self, check: Callable[[], bool]) -> None:
        """Hold, and let single steps through."""
        self.hold()
        for _ in range(300):
            if check():
                return
            self._allowed = self.steps
            time.sleep(0.02)
        raise AssertionError(
            f"waited too long: {[replica.engine.stats() for replica in self._served.replicas]}"
        )


@pytest.fixture
def gate(served: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    served.until(served.idle)
    made = Gate(served)

    def counted(abort: Any) -> Any:
        def call(request_id: str, *rest: Any) -> None:
            made.aborts += 1
            abort(request_id, *rest)

        return call

    for replica in served.replicas:
        monkeypatch.setattr(replica.runner, "before_run", made.before_step)
        monkeypatch.setattr(replica.engine, "abort", counted(replica.engine.abort))
    yield made
    made.open()
    served.until(served.idle)


@pytest.fixture(scope="module")
def adapter(served: Any) -> Iterator[str]:
    """A model with a pin to give back."""
    assert served.load("left", served.make_adapter("left", 71)).status_code == 200
    yield "left"
    served.unload("left")


def call(served: Any, body: dict[str, Any]) -> socket.socket:
    """A request under way, on a connection of its own."""
    content = json.dumps(body).encode()
    head = HEAD.format(len(content))
    connection = socket.create_connection((served.config.host, served.config.port))
    connection.sendall(head.encode() + content)
    return connection


def left_within_a_step(served: Any, gate: Gate, connection: socket.socket, requests: int = 1) -> None:
    """The steps are held while the client leaves; the one that was begun may end, and no other has it."""
    aborts, steps = gate.aborts, gate.steps
    connection.close()
    served.until(lambda: gate.aborts >= aborts + requests)
    gate.open()
    served.until(served.idle)
    assert gate.steps <= steps + len(served.replicas)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choices", [1, 4])
def test_in_decode(served: Any, gate: Gate, adapter: str, stream: bool, choices: int) -> None:
    connection = call(served, BODY | {"model": adapter, "stream": stream, "n": choices})
    gate.step_until(lambda: gate.total("running") == choices)
    left_within_a_step(served, gate, connection)


@pytest.mark.parametrize("stream", [False, True])
def test_in_prefill(served: Any, gate: Gate, adapter: str, stream: bool) -> None:
    """Four prompts, of which one fills a step; the first step is held."""
    gate.hold()
    before = gate.steps
    prompts = [f"{number}" * 400 for number in range(4)]
    connection = call(served, BODY | {"model": adapter, "stream": stream, "prompt": prompts, "max_tokens": 9})
    served.until(lambda: gate.steps > before)
    left_within_a_step(served, gate, connection, len(prompts))


Crowd = Callable[[int], None]


@pytest.fixture
def crowd(served: Any, gate: Gate) -> Iterator[Crowd]:
    """crowd(waiting): all places of each engine are taken, and so many requests wait; no gateway knows."""
    ids: list[str] = []

    def add(count: int, choices: int) -> None:
        for replica in served.replicas:
            for _ in range(count):
                ids.append(f"crowd-{len(ids)}")
                request = Request(ids[-1], (5,), SamplingParams(max_tokens=400, n=choices, ignore_eos=True))
                asyncio.run_coroutine_threadsafe(replica.engine.add(request), served.loop)

    def fill(waiting: int) -> None:
        add(1, 64)
        gate.step_until(lambda: all(item.engine.stats().running == 64 for item in served.replicas))
        add(waiting, 1)
        gate.step_until(lambda: gate.total("waiting") == waiting * len(served.replicas))

    yield fill
    for replica in served.replicas:
        for name in ids:
            served.loop.call_soon_threadsafe(replica.engine.abort, name)


@pytest.mark.parametrize("stream", [False, True])
def test_in_the_queue(served: Any, gate: Gate, crowd: Crowd, adapter: str, stream: bool) -> None:
    crowd(0)
    connection = call(served, BODY | {"model": adapter, "stream": stream})
    gate.step_until(lambda: gate.total("waiting") == 1)
    aborts, steps = gate.aborts, gate.steps
    connection.close()
    served.until(lambda: gate.aborts > aborts)
    gate.step_until(lambda: gate.total("waiting") == 0)
    assert gate.steps <= steps + 3 * len(served.replicas)
    assert gate.total("running") == 64 * len(served.replicas)


def test_while_the_body_is_on_its_way(served: Any, gate: Gate) -> None:
    before = gate.steps
    with socket.create_connection((served.config.host, served.config.port)) as connection:
        connection.sendall(HEAD.format(99).encode() + b"{")
    with served.client as client:
        client.models.list()
    assert gate.steps == before


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_says_when_to_come_again(served: Any, gate: Gate, crowd: Crowd, stream: bool) -> None:
    crowd(MAX_WAITING)
    gate.open()
    with served.http as http:
        answer = http.post("/v1/completions", json=BODY | {"model": "base", "stream": stream})
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"
    assert (answer.json()["error"]["code"], answer.json()["error"]["type"]) == (
        "queue_full",
        "rate_limit_error",
    )
