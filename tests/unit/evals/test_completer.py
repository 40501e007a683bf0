"""The OpenAI completer against a small HTTP server that records what it was sent."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from evals import CompletionFailed, OpenAICompleter

ANSWER = {
    "id": "1",
    "object": "chat.completion",
    "created": 0,
    "model": "m",
    "system_fingerprint": "abc-base",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello there."}}
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
}


class Endpoint(ThreadingHTTPServer):
    """Answers with `status` and `content`; keeps the requests."""

    daemon_threads = True
    status: int = 200
    content: Any = ANSWER

    def __init__(self) -> None:
        self.seen: list[tuple[dict[str, str], dict[str, Any]]] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append(({k.lower(): v for k, v in self.headers.items()}, body))
        content = json.dumps(self.server.content).encode()
        self.send_response(self.server.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test output clean."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_answer_comes_back_whole_and_the_headers_go_with_the_question(endpoint: Endpoint) -> None:
    completer = OpenAICompleter(endpoint.url, headers={"x-noria-source": "eval"})
    answer = completer.complete(
        [{"role": "user", "content": "Hi"}], model="assistant", max_tokens=5, temperature=0.0
    )
    completer.close()
    assert (answer.text, answer.finish_reason, answer.completion_tokens) == ("Hello there.", "stop", 4)
    assert answer.served_by == "abc-base"
    headers, body = endpoint.seen[0]
    assert headers["x-noria-source"] == "eval"
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("assistant", 5, 0.0)
    assert body["messages"] == [{"role": "user", "content": "Hi"}]


def test_a_refusal_becomes_a_failed_completion_with_the_endpoints_words(endpoint: Endpoint) -> None:
    endpoint.status, endpoint.content = 404, {"error": {"message": "no model is called 'x'"}}
    completer = OpenAICompleter(endpoint.url)
    with pytest.raises(CompletionFailed, match="no model is called 'x'"):
        completer.complete([{"role": "user", "content": "Hi"}], model="x", max_tokens=5, temperature=0.0)
    completer.close()


def test_an_answer_without_a_choice_is_a_failure(endpoint: Endpoint) -> None:
    endpoint.content = {**ANSWER, "choices": []}
    completer = OpenAICompleter(endpoint.url)
    with pytest.raises(CompletionFailed, match="without a choice"):
        completer.complete([{"role": "user", "content": "Hi"}], model="m", max_tokens=5, temperature=0.0)
    completer.close()
