"""/v1/batches through the openai client: run, refused, cancelled, expired, taken over from a dead gateway."""

from __future__ import annotations

import contextlib
import json
import os
import time
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
from serve.order import BACKGROUND_FROM

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ENDED = {"completed", "failed", "expired", "cancelled"}


@pytest.fixture
def client(served: Any) -> Iterator[openai.OpenAI]:
    with served.client as client:
        yield client


@pytest.fixture
def slow(served: Any) -> Iterator[None]:
    """A step takes 20 ms."""
    for replica in served.replicas:
        replica.runner.before_run = lambda plan: time.sleep(0.02)
    yield
    for replica in served.replicas:
        replica.runner.before_run = None


@pytest.fixture
def quick_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.batches.desk.LEASE_S", 1.0)
    monkeypatch.setattr("serve.batches.desk.RENEW_S", 0.2)
    monkeypatch.setattr("serve.batches.desk.LOOK_S", 0.1)
    monkeypatch.setattr("serve.batches.parts.GATHER_S", 0.1)


def text_line(custom_id: str, prompt: str = "hi", **body: Any) -> dict[str, Any]:
    asked = {"model": "base", "prompt": prompt, "max_tokens": 4, "seed": 1, **body}
    return {"custom_id": custom_id, "method": "POST", "url": TEXT, "body": asked}


def start(client: openai.OpenAI, lines: list[Any], endpoint: Any = TEXT, **options: Any) -> Any:
    content = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    file = client.files.create(file=("in.jsonl", content.encode()), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h", **options)


def ended(served: Any, client: openai.OpenAI, batch_id: str) -> Any:
    return served.until(
        lambda: batch if (batch := client.batches.retrieve(batch_id)).status in ENDED else None
    )


def lines_of(client: openai.OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    return [json.loads(line) for line in client.files.content(file_id).read().splitlines()]


def change(served: Any, batch_id: str, what: str) -> None:
    with served.database.transaction() as connection:
        connection.execute(f"UPDATE serve.batch SET {what} WHERE id = '{batch_id}'".encode())


def counts(batch: Any) -> tuple[int, int, int]:
    found = batch.request_counts
    return found.total, found.completed, found.failed


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
    chat = {"model": "assistant", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
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


def test_a_cancelled_batch_keeps_what_is_done(
    served: Any, client: openai.OpenAI, slow: None, quick_leases: None
) -> None:
    lines = [text_line(f"a{number}", f"{number}", max_tokens=8) for number in range(200)]
    made = start(client, lines)
    served.until(lambda: client.batches.retrieve(made.id).request_counts.completed > 0)
    told = client.batches.cancel(made.id)
    assert told.status == "cancelling"
    batch = ended(served, client, made.id)
    assert batch.status == "cancelled"
    assert batch.cancelled_at is not None
    total, completed, failed = counts(batch)
    assert total == 200
    assert 0 < completed < 200
    done = lines_of(client, batch.output_file_id)
    left = lines_of(client, batch.error_file_id)
    assert (len(done), failed) == (completed, 0)
    assert sorted(line["custom_id"] for line in done + left) == sorted(each["custom_id"] for each in lines)
    assert {line["error"]["code"] for line in left} == {"batch_cancelled"}
    assert {line["response"] for line in left} == {None}
    served.until(served.idle)
    with pytest.raises(openai.ConflictError, match="is cancelled"):
        client.batches.cancel(made.id)


def test_a_batch_whose_time_is_over_expires_with_what_is_done(
    served: Any, client: openai.OpenAI, slow: None, quick_leases: None
) -> None:
    with served.another(batch_lines=1) as other:  # another one takes it when this one leaves
        made = start(client, [text_line(f"a{number}", max_tokens=30) for number in range(300)])
        served.until(lambda: client.batches.retrieve(made.id).request_counts.completed > 0)
        change(served, made.id, "expires_at = now(), lease_no = lease_no + 1, lease_until = now()")
        batch = ended(other, client, made.id)
    assert (batch.status, batch.completed_at) == ("expired", None)
    done, left = lines_of(client, batch.output_file_id), lines_of(client, batch.error_file_id)
    assert len(done) == batch.request_counts.completed > 0
    assert len({line["custom_id"] for line in done + left}) == len(done) + len(left) == 300
    assert {line["error"]["code"] for line in left} == {"batch_expired"}


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


def test_interactive_requests_go_before_those_of_a_batch(
    served: Any, client: openai.OpenAI, slow: None
) -> None:
    seen: list[int] = []
    for replica in served.replicas:
        add = replica.engine.add
        replica.engine.add = lambda request, *rest, add=add, **named: (
            seen.append(request.priority), add(request, *rest, **named))[1]  # fmt: skip
    try:
        ended(served, client, start(client, [text_line("a", priority=-(1 << 31))]).id)
        client.completions.create(
            model="base", prompt="hi", max_tokens=1, extra_body={"priority": (1 << 31) - 1}
        )
    finally:
        for replica in served.replicas:
            del replica.engine.add
    assert seen == [BACKGROUND_FROM, BACKGROUND_FROM - 1]


def test_another_gateway_goes_on_where_one_died(
    served: Any, client: openai.OpenAI, slow: None, quick_leases: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.batches.desk.MAX_RUNS", 1)
    blocker = start(client, [text_line("b", max_tokens=500, ignore_eos=True)])
    served.until(lambda: client.batches.retrieve(blocker.id).status == "in_progress")
    with served.another(batch_lines=4) as other:
        lines = [text_line(f"a{number}", f"{number}", max_tokens=8) for number in range(60)]
        made = start(client, lines)
        desk = other.gateway.desk
        served.until(lambda: (made.id, 1) in desk._runs)
        served.until(lambda: client.batches.retrieve(made.id).request_counts.completed > 5)
        served.run(_die(desk))
        client.batches.cancel(blocker.id)
        batch = ended(served, client, made.id)
    assert (batch.status, counts(batch)) == ("completed", (60, 60, 0))
    answers = [line["custom_id"] for line in lines_of(client, batch.output_file_id)]
    assert sorted(answers) == sorted(each["custom_id"] for each in lines)
    assert db.batches.get(served.database, "default", made.id).lease_no == 2


async def _die(desk: Any) -> None:
    """What kill -9 leaves: no lease is given back, nothing under way is written."""

    async def never(*_: Any) -> None:
        return

    desk._release = desk._take = never
    await desk.close()


def test_what_a_dead_man_still_knows_does_not_count(
    served: Any, client: openai.OpenAI, slow: None, quick_leases: None
) -> None:
    made = start(client, [text_line(f"a{number}", f"{number}", max_tokens=8) for number in range(60)])
    served.until(lambda: client.batches.retrieve(made.id).request_counts.completed > 5)
    change(served, made.id, "lease_no = lease_no + 1, lease_until = now() + interval '1 minute'")
    served.until(lambda: not served.gateway.desk._runs)
    frozen = counts(client.batches.retrieve(made.id))
    served.until(served.idle)
    assert counts(client.batches.retrieve(made.id)) == frozen
    db.batches.renew(served.database, made.id, 2, 0.0)
    batch = ended(served, client, made.id)
    assert (batch.status, counts(batch)) == ("completed", (60, 60, 0))
    answers = [line["custom_id"] for line in lines_of(client, batch.output_file_id)]
    assert len(answers) == len(set(answers)) == 60


def test_a_batch_waits_for_a_store_that_is_away(
    served: Any, client: openai.OpenAI, slow: None, quick_leases: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.batches.desk.AGAIN_S", 0.2)
    store = Path(served.config.store_url.removeprefix("file://")) / "objects"
    aside = store.with_name("aside")
    made = start(client, [text_line(f"a{number}", f"{number}", max_tokens=8) for number in range(60)])
    served.until(lambda: client.batches.retrieve(made.id).request_counts.completed > 0)
    store.rename(aside)
    store.write_text("no folder")
    try:
        time.sleep(0.5)
        assert client.batches.retrieve(made.id).status == "in_progress"
    finally:
        store.unlink()
        aside.rename(store)
    batch = ended(served, client, made.id)
    assert (batch.status, counts(batch)) == ("completed", (60, 60, 0))
    assert len(lines_of(client, batch.output_file_id)) == 60


def test_an_input_file_that_is_gone_fails_the_batch(
    served: Any, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
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
