"""The HTTP edge itself: raw bodies, sizes, paths, probes, metrics, clients that leave."""

import json
import socket
import time
from typing import Any

import httpx
import pytest

BODY: dict[str, Any] = {"model": "base", "prompt": "go", "max_tokens": 400, "ignore_eos": True}


def post(served: Any, content: bytes, kind: str = "application/json") -> httpx.Response:
    with served.http as http:
        return http.post("/v1/completions", content=content, headers={"content-type": kind})


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"model": NaN}', b"\xff\xfe"])
def test_what_is_no_json_object_is_refused(served: Any, content: bytes) -> None:
    answer = post(served, content)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_body"


def test_only_json_is_read(served: Any) -> None:
    answer = post(served, json.dumps(BODY).encode(), "text/plain")
    assert answer.status_code == 400
    assert "application/json" in answer.json()["error"]["message"]


def test_a_body_beyond_the_bound_is_refused(served: Any) -> None:
    answer = post(served, b'{"model": "' + b"x" * (1 << 20) + b'"}')
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/completions", 405), ("GET", "/nowhere", 404), ("POST", "/v1/models", 405)],
)
def test_unknown_paths_and_methods_have_the_same_shape(
    served: Any, method: str, path: str, status: int
) -> None:
    with served.http as http:
        answer = http.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_wrong_method_is_told_which_are_right(served: Any) -> None:
    with served.http as http:
        answer = http.post("/v1/models")
    assert answer.headers["allow"] == "GET"
    assert answer.json()["error"]["message"] == "Method Not Allowed: POST /v1/models; allowed: GET"


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/health"), ("GET", "/nowhere"), ("GET", "/v1/completions"), ("POST", "/v1/chat/completions")],
)
def test_every_answer_has_a_request_id(served: Any, method: str, path: str) -> None:
    with served.http as http:
        own = http.request(method, path, headers={"x-request-id": "mine é".encode("latin-1")})
        made = [http.request(method, path).headers["x-request-id"] for _ in range(2)]
    assert own.headers["x-request-id"] == "mine é"
    assert len(set(made)) == 2


def test_an_answer_of_a_model_has_the_id_of_its_record(served: Any) -> None:
    answer = post(served, json.dumps(BODY | {"max_tokens": 1}).encode())
    assert answer.headers["x-request-id"] == answer.headers["x-noria-request-id"]


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/models/base", "/openapi.json", "/metrics"])
def test_head_is_get_without_the_body(served: Any, path: str) -> None:
    with served.http as http:
        head, get = http.head(path), http.get(path)
    assert head.status_code == get.status_code == 200
    assert head.content == b""
    assert head.headers["content-type"] == get.headers["content-type"]


def test_headers_beyond_the_bound_are_refused(served: Any) -> None:
    with served.http as http:
        answer = http.get("/health", headers={"x-long": "x" * (1 << 16)})
    assert answer.status_code == 431
    assert answer.json()["error"]["code"] == "headers_too_large"
    assert answer.headers["x-request-id"]


def test_health_and_probe(served: Any) -> None:
    with served.http as http:
        health = http.get("/health")
        assert http.get("/-/healthz").text == "success"
    assert health.status_code == 200
    state = health.json()
    assert state["status"] == "ok"
    assert state["replicas"] == {"base": 2}
    assert state["database"]["ok"]


def test_metrics_have_vllms_names_and_our_labels(served: Any) -> None:
    post(served, json.dumps(BODY | {"max_tokens": 3}).encode())
    with served.http as http:
        text = http.get("/metrics").text
    for name in (
        "vllm:num_requests_running{",
        "vllm:num_requests_waiting{",
        "vllm:kv_cache_usage_perc{",
        "vllm:prefix_cache_queries_total{",
        "vllm:num_preemptions_total{",
        "vllm:generation_tokens_total{",
        "vllm:lora_requests_info{",
        "noria:database_up 1.0",
        "noria:records_dropped_total 0.0",
    ):
        assert name in text
    assert 'vllm:time_to_first_token_seconds_count{adapter="base",model_name="base"}' in text
    assert 'vllm:request_success_total{adapter="base",finished_reason="length",model_name="base"}' in text


def test_the_events_of_a_stream_end_with_done(served: Any) -> None:
    with served.http as http:
        answer = http.post("/v1/completions", json=BODY | {"max_tokens": 3, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    assert all(
        json.loads(event.removeprefix("data: "))["object"] == "text_completion" for event in events[:-1]
    )


@pytest.fixture
def slow(served: Any) -> Any:
    """Steps that take long enough for a client to leave in the middle."""
    for replica in served.replicas:
        replica.runner.before_run = lambda plan: time.sleep(0.01)
    yield
    for replica in served.replicas:
        replica.runner.before_run = None


def leave(served: Any, body: dict[str, Any], after: float) -> None:
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection((served.config.host, served.config.port)) as connection:
        connection.sendall(head.encode() + content)
        if body.get("stream"):
            connection.recv(100)
        time.sleep(after)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choices", [1, 4])
def test_a_client_that_leaves_frees_the_replica(served: Any, slow: Any, stream: bool, choices: int) -> None:
    served.until(served.idle)
    before = sum(replica.engine.stats().generated_tokens for replica in served.replicas)
    leave(served, BODY | {"stream": stream, "n": choices}, 0.1)
    served.until(served.idle)
    made = sum(replica.engine.stats().generated_tokens for replica in served.replicas) - before
    assert 0 < made < 300 * choices


def test_a_client_that_leaves_while_its_request_waits(served: Any, slow: Any) -> None:
    served.until(served.idle)
    for _ in range(5):
        leave(served, BODY | {"n": 32, "prompt": "w" * 400, "max_tokens": 100}, 0.0)
    served.until(served.idle)
