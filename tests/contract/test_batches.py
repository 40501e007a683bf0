"""/v1/batches through the openai client: run, refused, listed, and what is left of them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import db.batches
import db.keys
import db.requests
from db.database import Database
from serve.errors import NoReplica
from tests.contract.batch_work import CHAT, TEXT, counts, ended, lines_of, start, text_line


@pytest.fixture
def client(served: Any) -> Iterator[openai.OpenAI]:
    with served.client as client:
        yield client


def test_every_line_is_answered_as_a_request_would_be(served: Any, client: openai.OpenAI) -> None:
    prompts = {f"p{number}": f"prompt number {number}" for number in range(40)}
    lines = [text_line(name, prompt, max_tokens=6) for name, prompt in prompts.items()]
    made = start(client, lines, metadata={"purpose": "a test"})
    assert (made.object, made.status, made.endpoint) == ("batch", "validating", TEXT)
    assert made.expires_at is not None
    assert made.expires_at - made.created_at == 86_400
    batch = ended(served, client, made.id)
    assert (batch.status, counts(batch), batch.error_file_id) == ("completed", (40, 40, 0), None)
    assert (batch.model, batch.metadata) == ("base", {"purpose": "a test"})
    assert None not in (batch.in_progress_at, batch.finalizing_at, batch.completed_at)
    answers = {line["custom_id"]: line for line in lines_of(client, batch.output_file_id)}
    assert answers.keys() == prompts.keys()
    used = 0
    for name, prompt in prompts.items():
        line = answers[name]
        assert line["id"].startswith("batch_req_")
        assert (line["error"], line["response"]["status_code"]) == (None, 200)
        body = line["response"]["body"]
        assert body["choices"][0]["text"] == served.expected(prompt, 6, seed=1)
        used += body["usage"]["total_tokens"]
    assert batch.usage.total_tokens == used
    output = client.files.retrieve(batch.output_file_id)
    assert (output.purpose, output.filename) == ("batch_output", f"{made.id}_output.jsonl")
    assert output.expires_at is None


def test_a_line_leaves_a_record_of_whoever_created_the_batch(served: Any, client: openai.OpenAI) -> None:
    said = [{"role": "user", "content": "hello"}]
    chat = {"model": "assistant", "messages": said, "max_tokens": 3, "ignore_eos": True}
    line = {"custom_id": "a", "method": "POST", "url": CHAT, "body": chat}
    headers = {"x-noria-source": "eval", "x-noria-user": "batcher", "x-noria-conversation": "c1"}
    batch = ended(served, client, start(client, [line], CHAT, extra_headers=headers).id)
    (answer,) = lines_of(client, batch.output_file_id)
    assert answer["response"]["body"]["object"] == "chat.completion"
    request_id = answer["response"]["request_id"]
    row = served.until(lambda: db.requests.get(served.database, request_id))
    assert (row["source"], row["user_key"], row["endpoint"]) == ("eval", "batcher", "assistant")
    assert (row["sampling"]["conversation"], row["finish_reason"]) == ("c1", "length")


def test_lines_that_are_refused_are_in_the_error_file(served: Any, client: openai.OpenAI) -> None:
    lines = [
        text_line("fine"),
        text_line("no model", model="nosuch"),
        text_line("bad value", temperature=-1),
        text_line("streamed", stream=True),
        text_line("too long", "x" * 600),
    ]
    batch = ended(served, client, start(client, lines).id)
    assert (batch.status, counts(batch), batch.model) == ("completed", (5, 1, 4), None)
    assert [line["custom_id"] for line in lines_of(client, batch.output_file_id)] == ["fine"]
    errors = {line["custom_id"]: line["response"] for line in lines_of(client, batch.error_file_id)}
    told = {name: (each["status_code"], each["body"]["error"]["param"]) for name, each in errors.items()}
    assert told == {
        "no model": (404, "model"),
        "bad value": (400, "temperature"),
        "streamed": (400, "stream"),
        "too long": (400, "prompt"),
    }


@pytest.mark.parametrize(
    ("lines", "problems"),
    [
        (["not JSON"], [("invalid_json_line", 1, None)]),
        (["[]", text_line("a"), '{"custom_id": "b", "x": NaN}'], [
            ("invalid_json_line", 1, None), ("invalid_json_line", 3, None)]),
        ([text_line("a"), text_line("a")], [("duplicate_custom_id", 2, "custom_id")]),
        ([text_line("a") | {"method": "GET"}], [("invalid_method", 1, "method")]),
        ([text_line("a") | {"url": CHAT}], [("mismatched_endpoint", 1, "url")]),
        ([text_line("a") | {"body": "x"}], [("invalid_request", 1, "body")]),
        ([text_line("a") | {"colour": "red"}], [("invalid_request", 1, "colour")]),
        ([{"custom_id": "a"}], [("invalid_method", 1, "method")]),
        ([], [("empty_file", None, None)]),
        (["", "  "], [("empty_file", None, None)]),
    ],
)  # fmt: skip
def test_an_input_that_is_not_sound_fails_with_every_reason(
    served: Any, client: openai.OpenAI, lines: list[Any], problems: list[tuple[str, int | None, str | None]]
) -> None:
    batch = ended(served, client, start(client, lines).id)
    assert batch.status == "failed"
    assert batch.failed_at is not None
    assert [(each.code, each.line, each.param) for each in batch.errors.data] == problems
    assert (batch.output_file_id, batch.error_file_id) == (None, None)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"endpoint": "/v1/images/edits"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after.seconds"),
        ({"colour": "red"}, "colour"),
        ({"input_file_id": None}, "input_file_id"),
    ],
)
def test_a_batch_that_makes_no_sense_is_refused(
    served: Any, client: openai.OpenAI, change: dict[str, Any], param: str
) -> None:
    file = client.files.create(file=("in.jsonl", b""), purpose="batch")
    body = {"input_file_id": file.id, "endpoint": TEXT, "completion_window": "24h"} | change
    with served.http as http:
        answer = http.post("/v1/batches", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(param)


def test_an_input_must_be_a_file_for_batches_that_is_there(served: Any, client: openai.OpenAI) -> None:
    batch = ended(served, client, start(client, [text_line("a")]).id)
    with pytest.raises(openai.BadRequestError, match="batch_output") as caught:
        client.batches.create(input_file_id=batch.output_file_id, endpoint=TEXT, completion_window="24h")
    assert caught.value.param == "input_file_id"
    with pytest.raises(openai.NotFoundError) as missing:
        client.batches.create(input_file_id="file-nosuch", endpoint=TEXT, completion_window="24h")
    assert (missing.value.code, missing.value.param) == ("file_not_found", "input_file_id")


def test_output_files_may_say_when_they_expire(served: Any, client: openai.OpenAI) -> None:
    wanted: Any = {"anchor": "created_at", "seconds": 3600}
    batch = ended(served, client, start(client, [text_line("a")], output_expires_after=wanted).id)
    output = client.files.retrieve(batch.output_file_id)
    assert output.expires_at == pytest.approx(output.created_at + 3600, abs=1)


def test_batches_are_listed_page_by_page(served: Any, client: openai.OpenAI) -> None:
    made = [ended(served, client, start(client, [text_line("a")]).id).id for _ in range(3)]
    page = client.batches.list(limit=2)
    assert [batch.id for batch in page.data] == made[:0:-1]
    assert page.has_more
    assert client.batches.list(limit=1, after=made[1]).data[0].id == made[0]
    with pytest.raises(openai.BadRequestError):
        client.batches.list(after="batch_nosuch")
    with pytest.raises(openai.BadRequestError):
        client.batches.list(limit=101)


def test_a_line_is_tried_again_while_the_platform_is_busy(
    served: Any, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = served.gateway.fleet
    pick, refusals = fleet.pick, []

    def busy(base_model: str, digest: str | None) -> Any:
        if len(refusals) < 3:
            refusals.append(digest)
            raise NoReplica(base_model)
        return pick(base_model, digest)

    monkeypatch.setattr(fleet, "pick", busy)
    batch = ended(served, client, start(client, [text_line("a"), text_line("b")]).id)
    assert (batch.status, counts(batch)) == ("completed", (2, 2, 0))
    assert len(refusals) == 3


def test_an_input_file_that_is_gone_fails_the_batch(served: Any, client: openai.OpenAI) -> None:
    file = client.files.create(file=("in.jsonl", json.dumps(text_line("a")).encode()), purpose="batch")
    Path(served.config.store_url.removeprefix("file://") + f"/objects/files/{file.id}").write_bytes(b"other")
    made = client.batches.create(input_file_id=file.id, endpoint=TEXT, completion_window="24h")
    batch = ended(served, client, made.id)
    assert (batch.status, batch.errors.data[0].code) == ("failed", "invalid_input_file")


def test_nothing_is_left_of_a_batch_but_its_files(served: Any, client: openai.OpenAI) -> None:
    made = ended(served, client, start(client, [text_line("a")]).id)
    root = Path(served.config.store_url.removeprefix("file://")) / "objects"
    served.until(lambda: not (root / "batches" / made.id).exists())
    assert db.batches.parts(served.database, made.id) == []
    old = root / "batches" / made.id / "of-a-dead-gateway"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"rubbish")
    served.gateway.cleaning.look()
    assert old.exists()
    os.utime(old, (0, 0))
    served.gateway.cleaning.look()
    assert not old.exists()
    assert client.files.content(made.output_file_id).read()


def test_a_tenant_never_sees_anothers_batches(served: Any, database: Database) -> None:
    with database.transaction() as connection:
        connection.execute(b"INSERT INTO serve.tenant (id) VALUES ('rival') ON CONFLICT DO NOTHING")
    ours, theirs = db.keys.create(database), db.keys.create(database, "rival")
    with served.another(require_api_key=True) as other, contextlib.ExitStack() as stack:
        mine, rival = (
            stack.enter_context(openai.OpenAI(base_url=f"{other.url}/v1", api_key=key, max_retries=0))
            for key in (ours, theirs)
        )
        made = start(mine, [text_line("a")])
        batch = ended(served, mine, made.id)
        for call in (rival.batches.retrieve, rival.batches.cancel):
            with pytest.raises(openai.NotFoundError) as caught:
                call(made.id)
            assert caught.value.code == "batch_not_found"
        assert rival.batches.list().data == []
        for file_id in (made.input_file_id, batch.output_file_id):
            with pytest.raises(openai.NotFoundError):
                rival.files.content(file_id)
            with pytest.raises(openai.NotFoundError):
                rival.batches.create(input_file_id=file_id, endpoint=TEXT, completion_window="24h")


def test_responses_are_answered_in_batches_too(served: Any, client: openai.OpenAI) -> None:
    body = {"model": "base", "input": "hello", "max_output_tokens": 16}
    url: Any = "/v1/responses"
    line = {"custom_id": "a", "method": "POST", "url": url, "body": body}
    batch = ended(served, client, start(client, [line], url).id)
    (answer,) = lines_of(client, batch.output_file_id)
    made = answer["response"]["body"]
    assert made["object"] == "response"
    assert client.responses.retrieve(made["id"]).output_text == made["output"][0]["content"][0]["text"]
    assert batch.usage.output_tokens == made["usage"]["output_tokens"] > 0


@pytest.mark.parametrize("odd", ["%00", "a%20b", "x" * 200, "%F0%9F%98%80"])
def test_whatever_stands_in_a_path_is_an_id_or_nobody(served: Any, odd: str) -> None:
    with served.http as http:
        answers = [
            http.get(f"/v1/files/{odd}"),
            http.get(f"/v1/files/{odd}/content"),
            http.delete(f"/v1/files/{odd}"),
            http.get(f"/v1/batches/{odd}"),
            http.post(f"/v1/batches/{odd}/cancel"),
        ]
    assert {answer.status_code for answer in answers} == {404}
