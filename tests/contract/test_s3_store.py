"""What only a server can do to a store: answer late, half, wrongly, not at all, or refuse."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lora.errors import NotInStore, StoreUnavailable
from lora.format import read_adapter
from lora.store import AdapterStore, open_store
from tests.contract.s3_server import S3Server
from tests.contract.shelves import WEIGHTS, S3Shelf

LARGE = 600_000  # columns: 9.6 MB, more than one part

Make = Callable[..., Path]


@pytest.fixture
def server(s3_credentials: None) -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def shelf(server: S3Server) -> S3Shelf:
    return S3Shelf(server)


def with_options(shelf: S3Shelf, **fields: object) -> AdapterStore:
    return open_store(shelf.store.url, replace(shelf.server.options, **fields))


def test_a_large_file_travels_in_parts(shelf: S3Shelf, make_adapter_folder: Make, tmp_path: Path) -> None:
    digest = shelf.store.put(make_adapter_folder(size=LARGE))
    (key,) = [key for key in shelf.keys("adapters/") if key.endswith(WEIGHTS)]
    tag = shelf.client.head_object(Bucket=shelf.bucket, Key=key)["ETag"]
    assert tag.strip('"').endswith("-2")  # S3's way to say: of two parts
    assert read_adapter(shelf.store.fetch(digest, tmp_path / "cache")).digest == digest


def test_a_put_that_fails_half_way_leaves_nothing(shelf: S3Shelf, make_adapter_folder: Make) -> None:
    folder = make_adapter_folder(size=LARGE)
    shelf.server.fail("busy", WEIGHTS, method="PUT")
    with pytest.raises(StoreUnavailable, match="SlowDown"):
        shelf.store.put(folder)
    assert shelf.keys("") == []
    assert "Uploads" not in shelf.client.list_multipart_uploads(Bucket=shelf.bucket)
    shelf.server.fail("busy", WEIGHTS, times=0)
    assert shelf.store.exists(shelf.store.put(folder))


def test_a_put_whose_marker_fails_leaves_nothing(shelf: S3Shelf, make_adapter_folder: Make) -> None:
    shelf.server.fail("busy", "/complete/", method="PUT")
    with pytest.raises(StoreUnavailable):
        shelf.store.put(make_adapter_folder())
    assert shelf.keys("") == []


def test_a_sweep_aborts_uploads_whose_writer_died(shelf: S3Shelf, make_adapter_folder: Make) -> None:
    kept = shelf.store.put(make_adapter_folder())
    key = f"some/prefix/adapters/{'0' * 64}/1/{WEIGHTS}"
    shelf.client.create_multipart_upload(Bucket=shelf.bucket, Key=key)
    assert shelf.store.sweep(older_than_s=-60.0) == 1
    assert "Uploads" not in shelf.client.list_multipart_uploads(Bucket=shelf.bucket)
    assert shelf.store.list() == [kept]


def test_bytes_that_change_on_the_way_are_fetched_once_more(
    shelf: S3Shelf, make_adapter_folder: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    digest, cache = shelf.store.put(make_adapter_folder()), tmp_path / "cache"
    shelf.server.fail("altered", WEIGHTS, times=1)
    with caplog.at_level(logging.WARNING):
        assert read_adapter(shelf.store.fetch(digest, cache)).digest == digest
    assert f"{digest} arrived damaged" in caplog.text
    assert len(list((cache / "quarantine").iterdir())) == 1
    assert shelf.quarantined() == 0


def test_an_answer_that_breaks_off_is_asked_for_again(
    shelf: S3Shelf, make_adapter_folder: Make, tmp_path: Path
) -> None:
    digest = shelf.store.put(make_adapter_folder())
    for number, where in enumerate((WEIGHTS, "/complete/")):
        shelf.server.fail("cut", where, times=1)
        assert read_adapter(shelf.store.fetch(digest, tmp_path / str(number))).digest == digest


@pytest.mark.parametrize("fault", ["busy", "denied", "cut", "silent"])
@pytest.mark.parametrize("where", [WEIGHTS, "/complete/"])
def test_a_fetch_that_fails_leaves_nothing_and_moves_nothing_aside(
    shelf: S3Shelf, make_adapter_folder: Make, tmp_path: Path, fault: str, where: str
) -> None:
    digest, cache = shelf.store.put(make_adapter_folder()), tmp_path / "cache"
    store = with_options(shelf, timeout_s=0.2)
    shelf.server.fail(fault, where)
    with pytest.raises(StoreUnavailable):
        store.fetch(digest, cache)
    assert list(cache.iterdir()) == []
    assert shelf.quarantined() == 0
    shelf.server.fail(fault, where, times=0)
    assert read_adapter(store.fetch(digest, cache)).digest == digest


def test_a_server_that_goes_away_half_way_through(
    shelf: S3Shelf, make_adapter_folder: Make, tmp_path: Path
) -> None:
    digest, cache = shelf.store.put(make_adapter_folder()), tmp_path / "cache"
    old = shelf.store.fetch(digest, cache)
    other = shelf.store.put(make_adapter_folder(2))
    shelf.server.stop()
    with pytest.raises(StoreUnavailable, match="EndpointConnectionError"):
        shelf.store.fetch(other, cache)
    assert list(cache.iterdir()) == [old]


def test_no_error_tells_what_the_server_says_of_the_credentials(
    shelf: S3Shelf, make_adapter_folder: Make
) -> None:
    shelf.server.fail("denied", "", method="PUT")
    with pytest.raises(StoreUnavailable, match=r"^the store is not available: .*AccessDenied$") as met:
        shelf.store.put(make_adapter_folder())
    text = "".join(traceback.format_exception(met.value))
    assert "a-key-id" not in text
    assert "a-secret-key" not in text


def test_credentials_that_are_nowhere(shelf: S3Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreUnavailable, match="NoCredentialsError"):
        with_options(shelf).check()


def test_a_bucket_that_does_not_exist(shelf: S3Shelf, tmp_path: Path) -> None:
    store = open_store("s3://nowhere", shelf.server.options)
    for call in (store.check, store.list, lambda: store.fetch("sha256:" + "0" * 64, tmp_path)):
        with pytest.raises(StoreUnavailable, match="NoSuchBucket"):
            call()


@pytest.mark.parametrize("checksums", [True, False])
def test_checksums_of_the_protocol_are_sent_where_they_are_wanted(
    shelf: S3Shelf, make_adapter_folder: Make, tmp_path: Path, checksums: bool
) -> None:
    store = with_options(shelf, checksums=checksums)
    digest = store.put(make_adapter_folder())
    assert bool(shelf.server.sums) == checksums
    assert read_adapter(store.fetch(digest, tmp_path / "cache")).digest == digest


def test_uploads_of_writers_that_met_count_as_one_adapter(
    shelf: S3Shelf, make_adapter_folder: Make, tmp_path: Path
) -> None:
    digest = shelf.store.put(make_adapter_folder())
    for key in shelf.keys(""):
        head, _, name = key.rpartition("/")
        twin = f"{head}/twin" if "/complete/" in key else f"{head.rpartition('/')[0]}/twin/{name}"
        source = {"Bucket": shelf.bucket, "Key": key}
        shelf.client.copy_object(Bucket=shelf.bucket, Key=twin, CopySource=source)
    assert shelf.store.list() == [digest]
    assert shelf.store.delete(digest)
    assert shelf.keys("") == []
    with pytest.raises(NotInStore):
        shelf.store.fetch(digest, tmp_path / "cache")


@pytest.mark.parametrize(
    "marker",
    [
        b"not JSON",
        b"[]",
        b'{"files": {}}',
        b'{"files": {"../../escape": {"bytes": 1, "sha256": "0"}}}',
        b'{"files": {"/etc/passwd": {"bytes": 1, "sha256": "0"}}}',
        b'{"files": {"complete": {"bytes": -1}}}',
    ],
)
def test_a_marker_that_was_tampered_with_is_damage(
    shelf: S3Shelf, make_adapter_folder: Make, tmp_path: Path, marker: bytes
) -> None:
    digest = shelf.store.put(make_adapter_folder())
    (key,) = shelf.keys("complete/")
    shelf.client.put_object(Bucket=shelf.bucket, Key=key, Body=marker)
    assert shelf.store.put(make_adapter_folder()) == digest
    assert shelf.quarantined() == 1
    assert read_adapter(shelf.store.fetch(digest, tmp_path / "cache")).digest == digest
