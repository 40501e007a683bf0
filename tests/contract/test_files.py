"""/v1/files through the openai client: up, listed, down again, gone, and another tenant's."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import db.files
import db.keys
from db.database import Database
from tests.contract.s3_server import S3Server

LINES = b'{"custom_id": "a"}\n'


@pytest.fixture
def client(served: Any) -> Iterator[openai.OpenAI]:
    with served.client as client:
        yield client


def upload(client: openai.OpenAI, content: bytes = LINES, **options: Any) -> Any:
    return client.files.create(file=("lines.jsonl", content), purpose="batch", **options)


def post(served: Any, **parts: Any) -> httpx.Response:
    with served.http as http:
        return http.post("/v1/files", **parts)


def test_a_file_comes_back_as_it_was_sent(client: openai.OpenAI) -> None:
    content = bytes(range(256)) * 12_000  # three pieces
    made = upload(client, content)
    assert (made.object, made.bytes, made.filename) == ("file", len(content), "lines.jsonl")
    assert (made.purpose, made.status) == ("batch", "processed")
    assert client.files.retrieve(made.id) == made
    assert client.files.content(made.id).read() == content
    assert made.expires_at == pytest.approx(made.created_at + 30 * 86_400, abs=1)


def test_an_empty_file_is_a_file(client: openai.OpenAI) -> None:
    assert client.files.content(upload(client, b"").id).read() == b""


def test_a_file_may_say_when_it_expires(client: openai.OpenAI) -> None:
    made = upload(client, expires_after={"anchor": "created_at", "seconds": 7200})
    assert made.expires_at == pytest.approx(made.created_at + 7200, abs=1)
    with pytest.raises(openai.BadRequestError, match=r"expires_after.seconds is '60'") as caught:
        upload(client, expires_after={"anchor": "created_at", "seconds": 60})
    assert caught.value.param == "expires_after.seconds"


def test_a_removed_file_is_gone_with_its_bytes(served: Any, client: openai.OpenAI) -> None:
    made = upload(client)
    place = served.config.store_url.removeprefix("file://") + f"/objects/files/{made.id}"
    assert Path(place).read_bytes() == LINES
    assert client.files.delete(made.id).deleted
    for call in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError) as caught:
            call(made.id)
        assert caught.value.code == "file_not_found"
    served.gateway.files.clean()
    assert not Path(place).exists()


def test_files_are_listed_page_by_page(client: openai.OpenAI) -> None:
    made = [upload(client).id for _ in range(3)]
    page = client.files.list(limit=2)
    assert [file.id for file in page.data] == [made[2], made[1]]
    assert page.has_more
    following = client.files.list(limit=1, after=made[1])
    assert [file.id for file in following.data] == [made[0]]
    assert [file.id for file in client.files.list(limit=2, order="asc", after=made[0]).data] == made[1:]
    assert client.files.list(purpose="batch_output", order="asc", after=made[0]).data == []
    walked = [file.id for file in client.files.list(limit=2)]
    assert walked[:3] == made[::-1]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"order": "up"}, "order"),
        ({"after": "file-nosuch"}, "after"),
        ({"after": "../x"}, "after"),
        ({"purpose": "vision"}, "purpose"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(served: Any, query: dict[str, str], param: str) -> None:
    with served.http as http:
        answer = http.get("/v1/files", params=query)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("purpose", ["assistants", "fine-tune", "vision", "user_data", "batch_output"])
def test_other_purposes_are_refused(served: Any, purpose: str) -> None:
    answer = post(served, files={"file": ("a.jsonl", LINES)}, data={"purpose": purpose})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "purpose")


@pytest.mark.parametrize(
    ("parts", "param"),
    [
        ({"files": {"file": ("a", LINES)}}, "purpose"),
        ({"files": {"purpose": (None, "batch")}}, "file"),
        ({"files": {"file": (None, "no file"), "purpose": (None, "batch")}}, "file"),
        ({"files": {"other": ("a", LINES)}, "data": {"purpose": "batch"}}, "other"),
        ({"files": {"file": ("a", LINES)}, "data": {"purpose": "batch", "colour": "red"}}, "colour"),
        ({"files": {"file": ("a", LINES)}, "data": {"purpose": ["batch", "batch"]}}, "purpose"),
        ({"files": {"file": ("a" * 600, LINES)}, "data": {"purpose": "batch"}}, "file"),
        ({"files": [("file", ("a", LINES)), ("file", ("b", LINES))], "data": {"purpose": "batch"}}, None),
        ({"json": {"purpose": "batch"}}, None),
        ({"content": b"--x", "headers": {"content-type": "multipart/form-data; boundary=x"}}, "file"),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, None),
    ],
)
def test_a_form_that_makes_no_sense_is_refused(served: Any, parts: dict[str, Any], param: str | None) -> None:
    answer = post(served, **parts)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_a_file_over_the_bound_is_refused_before_it_has_come_whole(served: Any) -> None:
    with served.another(max_file_bytes=1000) as other:
        for size in (1001, 4 << 20):
            answer = post(other, files={"file": ("a", b"x" * size)}, data={"purpose": "batch"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        answer = post(other, files={"file": ("a", b"x" * 1000)}, data={"purpose": "batch"})
        assert (answer.status_code, answer.json()["bytes"]) == (200, 1000)


def test_a_tenant_never_sees_anothers_files(served: Any, database: Database) -> None:
    with database.transaction() as connection:
        connection.execute("INSERT INTO serve.tenant (id) VALUES ('rival') ON CONFLICT DO NOTHING")
    ours, theirs = db.keys.create(database), db.keys.create(database, "rival")
    with served.another(require_api_key=True) as other, contextlib.ExitStack() as stack:
        mine, rival = (
            stack.enter_context(openai.OpenAI(base_url=f"{other.url}/v1", api_key=key, max_retries=0))
            for key in (ours, theirs)
        )
        made = upload(mine)
        for call in (rival.files.retrieve, rival.files.content, rival.files.delete):
            with pytest.raises(openai.NotFoundError):
                call(made.id)
        assert rival.files.list().data == []
        with pytest.raises(openai.BadRequestError):
            rival.files.list(after=made.id)
        assert mine.files.retrieve(made.id).id == made.id
        answer = post(other, files={"file": ("a", LINES)}, data={"purpose": "batch"})
        assert answer.status_code == 401


def test_a_store_that_is_away_is_told_and_leaves_no_file(served: Any, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no folder")
    with served.another(store_url=(tmp_path / "store").as_uri()) as other:
        newest = [file.id for file in served.client.files.list(limit=1).data]
        answer = post(other, files={"file": ("a", LINES)}, data={"purpose": "batch"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
        assert [file.id for file in served.client.files.list(limit=1).data] == newest


def test_bytes_that_are_lost_are_told_and_not_made_up(served: Any, client: openai.OpenAI) -> None:
    made = upload(client)
    Path(served.config.store_url.removeprefix("file://") + f"/objects/files/{made.id}").unlink()
    with pytest.raises(openai.InternalServerError) as caught:
        client.files.content(made.id)
    assert caught.value.code == "content_missing"


def test_files_live_in_a_bucket_as_well(served: Any, s3_credentials: None) -> None:
    server = S3Server()
    server.client().create_bucket(Bucket="files")
    content = bytes(range(256)) * 40_000  # more than one part of an upload
    try:
        with (
            served.another(store_url="s3://files/some/prefix", s3=server.options) as other,
            other.client as client,
        ):
            made = upload(client, content)
            assert client.files.content(made.id).read() == content
            client.files.delete(made.id)
            other.gateway.files.clean()
        assert server.client().list_objects_v2(Bucket="files")["KeyCount"] == 0
    finally:
        server.stop()
