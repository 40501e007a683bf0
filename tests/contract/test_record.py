"""The request record and feedback, from the HTTP edge to the tables."""

from typing import Any
from uuid import uuid4

import httpx
import pytest

import db.feedback
import db.requests


def ask(served: Any, **options: Any) -> httpx.Response:
    headers = options.pop("headers", {})
    body = {
        "model": "assistant",
        "messages": [{"role": "user", "content": "hi\x00 é"}],
        "max_tokens": 8,
        "seed": 1,
    }
    with served.http as http:
        return http.post("/v1/chat/completions", json=body | options, headers=headers)


def row(served: Any, request_id: str) -> dict[str, Any]:
    return dict(served.until(lambda: db.requests.get(served.database, request_id)))


def test_a_request_becomes_a_row(served: Any) -> None:
    headers = {"x-noria-user": "header-user", "x-noria-source": "eval", "x-noria-conversation": "c7"}
    answer = ask(served, headers=headers, temperature=0.5, user="body-user")
    found = row(served, answer.headers["x-noria-request-id"])
    made = answer.json()
    assert found["completion"] == made["choices"][0]["message"]["content"]
    assert found["finish_reason"] == made["choices"][0]["finish_reason"]
    assert found["endpoint"] == "assistant"
    assert found["base_model"] == "base"
    assert found["user_key"] == "body-user"
    assert found["source"] == "eval"
    assert found["completion_tokens"] == made["usage"]["completion_tokens"]
    assert found["sampling"]["temperature"] == 0.5
    assert found["sampling"]["conversation"] == "c7"
    assert found["variant"] == "base"


def test_a_regeneration_names_its_parent(served: Any) -> None:
    first = ask(served).headers["x-noria-request-id"]
    by_header = ask(served, headers={"x-noria-parent": f"chatcmpl-{first}"})
    by_metadata = ask(served, metadata={"parent_request_id": first})
    for answer in (by_header, by_metadata):
        assert str(row(served, answer.headers["x-noria-request-id"])["parent_id"]) == first


def test_every_choice_has_a_row(served: Any) -> None:
    answer = ask(served, n=2)
    ids = answer.headers["x-noria-choice-ids"].split(",")
    completions = [choice["message"]["content"] for choice in answer.json()["choices"]]
    assert [row(served, each)["completion"] for each in ids] == completions


def test_a_refused_request_is_a_row_with_its_reason(served: Any) -> None:
    body = {"model": "base", "prompt": "x", "max_tokens": 400, "n": 2}
    for replica in served.replicas:
        replica.runner.poison = served.tokenizer.encode("x")[0]
    try:
        with served.http as http:
            answer = http.post("/v1/completions", json=body)
    finally:
        for replica in served.replicas:
            replica.runner.poison = None
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "generation_failed"
    assert served.gateway.health_report()["status"] == "ok"


def test_feedback_is_acknowledged_and_stored(served: Any) -> None:
    request_id = ask(served).json()["id"]
    key = str(uuid4())
    with served.http as http:
        for _ in range(2):
            sent = {
                "request_id": request_id,
                "kind": "thumbs",
                "value": -1,
                "user": "ann",
                "idempotency_key": key,
            }
            answer = http.post("/v1/feedback", json=sent)
            assert answer.status_code == 202
        http.post("/v1/feedback", json={"request_id": request_id, "kind": "edit", "text": "better"})
    bare = request_id.removeprefix("chatcmpl-")
    acts = served.until(lambda: len(found := db.feedback.history(served.database, bare)) == 2 and found)
    assert [(act.kind, act.value, act.text) for act in acts] == [
        ("thumbs", -1, None),
        ("edit", None, "better"),
    ]
    assert acts[0].actor == "ann"


def test_feedback_may_come_before_its_request_is_known(served: Any) -> None:
    unknown = str(uuid4())
    with served.http as http:
        assert (
            http.post("/v1/feedback", json={"request_id": unknown, "kind": "regenerate"}).status_code == 202
        )
    served.until(lambda: db.feedback.history(served.database, unknown))


@pytest.mark.parametrize("body", [{}, {"request_id": "x", "kind": "thumbs", "value": 1}, {"kind": "thumbs"}])
def test_feedback_that_makes_no_sense_is_refused(served: Any, body: dict[str, Any]) -> None:
    with served.http as http:
        assert http.post("/v1/feedback", json=body).status_code == 400


def test_rows_that_found_no_week_are_told(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.gateway.upkeep, "stranded", 3)
    with served.http as http:
        health, metrics = http.get("/health"), http.get("/metrics")
    assert (health.status_code, health.json()["status"]) == (200, "degraded")
    assert health.json()["records"]["stranded"] == 3
    assert "noria:rows_stranded 3.0" in metrics.text
