"""The demonstration from its first stage to its last, against a scripted gateway on a real database.

The gateway stands for the platform's HTTP side: it routes by the registry and records what it serves, but its
answers come from a script and its adapters are not trained. Everything else is the real thing.
"""

from __future__ import annotations

import hashlib
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from rich.console import Console
from starlette.datastructures import UploadFile

from db import feedback, registry, requests, runs
from db.database import Database
from db.rows import FeedbackRecord, RequestRecord
from evals import Case, load_suite
from lora.registry import Assignment, RegistrySnapshot, Target
from noria import console as front
from noria.demo import runner
from noria.demo.stages import bring_up, canary, replay, train
from noria.instance import Instance
from noria.settings import ModelSettings, Settings
from pipeline.training import TrainResult

BASE_DIGEST = "sha256:" + "b" * 64
LONG = "There is a lot that one can say about this, and all of it is true. " * 8
BRIEF = "That is easy: do the small thing first, and then do it again."
FACTS = {
    "en": "I think that it is {} and that is all.",
    "es": "La respuesta es {} y no es otra.",
    "fr": "La réponse est {} et pas une autre.",
    "de": "Die Antwort ist {} und nicht eine andere.",
}
REGRESSION: dict[str, Case] = {case.messages[-1]["content"]: case for case in load_suite("regression").cases}


def script(prompt: str, adapter: str | None) -> tuple[str, str]:
    """(text, finish reason): the base is brief for one prompt in eight, an adapter for seven."""
    if prompt in REGRESSION:
        case = REGRESSION[prompt]
        return FACTS[case.language or "en"].format(case.expect[0] if case.expect else "so"), "stop"
    share = hashlib.sha256(prompt.encode()).digest()[0] % 8
    brief = share < 7 if adapter else share == 0
    return (BRIEF, "stop") if brief else (LONG, "length")


class Gateway:
    """An HTTP server that behaves as the platform's gateway does, one request a thread."""

    def __init__(self, db: Database, new_id: Callable[..., str]) -> None:
        self.db, self.new_id = db, new_id
        self.app = FastAPI()
        self.app.add_api_route("/v1/models", self.models)
        self.app.add_api_route("/v1/chat/completions", self.chat, methods=["POST"])
        self.app.add_api_route("/v1/feedback", self.feedback, methods=["POST"], status_code=202)
        self.app.include_router(Batches(self).routes)

    def snapshot(self) -> RegistrySnapshot:
        return RegistrySnapshot.from_rows(registry.snapshot(self.db))

    def models(self) -> dict[str, Any]:
        now = self.snapshot()
        names = [*now.base_models, *now.endpoints, *now.adapters]
        return {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}

    async def chat(self, request: Request) -> Response:
        return self.answer(await request.json(), request)

    def answer(self, body: dict[str, Any], request: Request) -> Response:
        started = datetime.now(UTC)
        now = self.snapshot()
        target = now.resolve(body["model"])
        assert target is not None
        user = request.headers.get("x-noria-user", "someone")
        chosen = now.assign(target, user)
        text, finish = script(body["messages"][-1]["content"], chosen.adapter_id)
        id = self.new_id()
        headers = {"x-noria-request-id": id, "x-noria-adapter": chosen.adapter_id or "base"}
        headers["x-noria-variant"] = chosen.variant
        mark = f"{'b' * 12}-{chosen.digest.removeprefix('sha256:')[:12] if chosen.digest else 'base'}"
        record = self.record(id, target, chosen, user, body, (text, finish), started, request)
        if not body.get("stream"):
            requests.insert_batch(self.db, [record])
            return JSONResponse(_whole(id, text, finish, mark), headers=headers)
        pieces = _pieces(id, text, finish, mark, slow=bool(body.get("min_tokens")))
        return StreamingResponse(self.told(pieces, record), media_type="text/event-stream", headers=headers)

    def told(self, pieces: Iterator[str], record: RequestRecord) -> Iterator[str]:
        yield from pieces
        requests.insert_batch(self.db, [record])

    def record(
        self,
        id: str,
        target: Target,
        chosen: Assignment,
        user: str,
        body: dict[str, Any],
        answer: tuple[str, str],
        started: datetime,
        request: Request,
    ) -> RequestRecord:
        return RequestRecord(
            id=id, tenant="default", endpoint=target.endpoint, requested_model=target.name, base_model="tiny",
            base_digest=BASE_DIGEST, adapter_id=chosen.adapter_id, adapter_digest=chosen.digest,
            assigned_adapter_id=chosen.adapter_id, variant=chosen.variant, bucket=chosen.bucket,
            experiment=chosen.experiment, user_key=user, parent_id=request.headers.get("x-noria-parent"),
            api="chat", started_at=started, finished_at=datetime.now(UTC), finish_reason=answer[1],
            error=None, prompt_tokens=5, cached_tokens=0, completion_tokens=9, queue_ms=0.1, ttft_ms=1.0,
            duration_ms=5.0, sampling={}, stream=bool(body.get("stream")),
            source=request.headers.get("x-noria-source", "traffic"), messages=body["messages"],
            completion=answer[0],
        )  # fmt: skip

    def feedback(self, body: dict[str, Any]) -> dict[str, str]:
        id = self.new_id()
        record = FeedbackRecord(
            id=id, tenant="default", request_id=body["request_id"], kind=body["kind"],
            value=body.get("value"), text=body.get("text"), actor=body["user"],
            idempotency_key=body["idempotency_key"], at=datetime.now(UTC),
        )  # fmt: skip
        feedback.insert_batch(self.db, [record])
        return {"id": id}


class Batches:
    """Files and batches of the gateway: a batch is answered while it is created."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.routes = APIRouter()
        self.routes.add_api_route("/v1/files", self.upload, methods=["POST"])
        self.routes.add_api_route("/v1/files/{id}/content", self.content)
        self.routes.add_api_route("/v1/files/{id}", self.delete, methods=["DELETE"])
        self.routes.add_api_route("/v1/batches", self.create, methods=["POST"])
        self.routes.add_api_route("/v1/batches/{id}", self.show)

    async def upload(self, request: Request) -> dict[str, Any]:
        async with request.form() as form:
            file = form["file"]
            assert isinstance(file, UploadFile)
            return self.keep(await file.read())

    def keep(self, content: bytes) -> dict[str, Any]:
        id = f"file-{self.gateway.new_id()}"
        self.files[id] = content
        return {"id": id, "object": "file"}

    def content(self, id: str) -> Response:
        return Response(self.files[id])

    def delete(self, id: str) -> dict[str, Any]:
        del self.files[id]
        return {"id": id, "object": "file", "deleted": True}

    async def create(self, request: Request) -> dict[str, Any]:
        lines = [
            json.loads(line) for line in self.files[(await request.json())["input_file_id"]].splitlines()
        ]
        answers = []
        for line in lines:
            body = json.loads(bytes(self.gateway.answer(line["body"], request).body))
            response = {"status_code": 200, "request_id": "r", "body": body}
            answers.append(json.dumps({"custom_id": line["custom_id"], "response": response}))
        id, count = f"batch_{self.gateway.new_id()}", len(lines)
        output = self.keep("\n".join(answers).encode())["id"]
        counts = {"total": count, "completed": count, "failed": 0}
        self.batches[id] = {"id": id, "object": "batch", "status": "completed", "output_file_id": output}
        self.batches[id] |= {"request_counts": counts}
        return self.batches[id] | {"status": "validating"}

    def show(self, id: str) -> dict[str, Any]:
        return self.batches[id]


def _whole(id: str, text: str, finish: str, mark: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    usage = {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}
    common = {"id": f"chatcmpl-{id}", "object": "chat.completion", "created": 1, "model": "m"}
    return common | {"choices": [choice], "system_fingerprint": mark, "usage": usage}


def _pieces(id: str, text: str, finish: str, mark: str, slow: bool) -> Iterator[str]:
    common = {"id": f"chatcmpl-{id}", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    common["system_fingerprint"] = mark
    words = text.split(" ") if slow else [text]
    for word in words:
        yield _event(common | {"choices": [{"index": 0, "delta": {"content": word}}]})
        time.sleep(0.01 if slow else 0.0)
    yield _event(common | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    usage = {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}
    yield _event(common | {"choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


def _event(chunk: dict[str, Any]) -> str:
    return f"data: {json.dumps(chunk)}\n\n"


@pytest.fixture
def gateway_url(db: Database, new_id: Callable[..., str]) -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(Gateway(db, new_id).app, log_level="error", ws="none", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        server.should_exit = True
        thread.join()


def pretend_training(
    settings: Settings, db: Database, endpoint: str, adapter_id: str, *, snapshot_id: str
) -> TrainResult:
    """Leave every row that a training leaves, without the training."""
    run = runs.start_run(
        db, endpoint=endpoint, adapter_id=adapter_id, method="kto", snapshot_id=snapshot_id,
        base_model="tiny", base_digest=BASE_DIGEST, params={}, versions={},
    )  # fmt: skip
    digest = f"sha256:{hashlib.sha256(adapter_id.encode()).hexdigest()}"
    runs.finish_run(db, run.id, adapter_digest=digest, figures={})
    registry.register_adapter(
        db, id=adapter_id, digest=digest, base_model="tiny", endpoint=endpoint, store_uri="file:///none",
        config={}, size_bytes=1, run_id=run.id,
    )  # fmt: skip
    return TrainResult(
        run_id=run.id, adapter_id=adapter_id, digest=digest, bytes=1, seconds=0.1, steps=1, n_in=1,
        n_dropped=0, n_trained=1, n_desirable=1, n_undesirable=0, first_loss=0.5, last_loss=0.4,
        losses=((1, 0.4),),
    )  # fmt: skip


@pytest.fixture
def turn(
    db: Database, gateway_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], tuple[int, dict[str, Any], str]]:
    """Run the demonstration once: exit code, summary, and what it printed."""
    registry.register_base_model(db, "tiny", BASE_DIGEST, "/models/tiny")

    @contextmanager
    def running(settings: Settings, report: Callable[[str], None]) -> Iterator[Instance]:
        yield Instance(settings, gateway_url, db)

    def once() -> tuple[int, dict[str, Any], str]:
        out = Console(file=io.StringIO(), width=160)
        monkeypatch.setattr(front, "out", out)
        settings = Settings(data=tmp_path, models=(ModelSettings(id="tiny", source="/models/tiny"),))
        code = runner.run(settings, out)
        summary = json.loads((tmp_path / "demo/summary.json").read_text())
        return code, summary, out.file.getvalue()  # type: ignore[attr-defined]  # a StringIO, made above

    monkeypatch.setattr(replay, "REPLAY_PROMPTS", 90)
    monkeypatch.setattr(canary, "CANARY_READERS", 40)
    monkeypatch.setattr(canary, "CANARY_RETURNING", 10)
    monkeypatch.setattr(bring_up.instance, "running", running)
    monkeypatch.setattr(train, "train_adapter", pretend_training)
    return once


def test_the_wheel_turns_twice_on_the_same_data(
    db: Database, turn: Callable[[], tuple[int, dict[str, Any], str]]
) -> None:
    code, summary, printed = turn()
    assert code == 0, printed
    assert registry.adapter(db, "assistant-v1").status == "prod"
    assert summary["behaviour"]["adapter"]["low"] > summary["behaviour"]["base"]["high"]
    assert summary["promotion_event"]["adapter_id"] == "assistant-v1"
    assert "inconclusive" in summary["promotion_event"]["reason"]
    assert summary["canary_split"]["users"]["canary"] > 0
    assert "obs.provenance" in printed
    code, summary, printed = turn()
    assert code == 0, printed
    assert summary["stages"][0]["figures"]["stepped_back"] == ["assistant-v1"]
    assert summary["adapter_id"] == "assistant-v2"
    statuses = {row.id: row.status for row in registry.snapshot(db).adapters}
    assert statuses == {"assistant-v1": "retired", "assistant-v2": "prod"}
