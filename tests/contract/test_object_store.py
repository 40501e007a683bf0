"""What every store of objects must do, on a folder and on an S3-protocol server, beside adapters."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lora.errors import DamagedObject, InvalidKey, NoObject, StoreUnavailable
from lora.store import ObjectStore, open_objects
from tests.contract.shelves import S3Shelf, Shelf

LARGE = b"0123456789abcdef" * (9 << 16)  # 9 MiB: more than one part of an upload


@pytest.fixture
def store(shelf: Shelf) -> ObjectStore:
    return open_objects(*shelf.again)


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def put(store: ObjectStore, key: str, content: bytes) -> None:
    written = store.put(key, io.BytesIO(content))
    assert (written.bytes, written.sha256) == (len(content), sha(content))


def fetched(store: ObjectStore, key: str, content: bytes) -> bytes:
    with io.BytesIO() as into:
        store.fetch(key, into, sha(content))
        return into.getvalue()


@pytest.mark.parametrize("content", [b"", b"one line\n", LARGE], ids=["empty", "small", "large"])
def test_what_is_fetched_is_what_was_put(store: ObjectStore, content: bytes) -> None:
    put(store, "files/a", content)
    assert fetched(store, "files/a", content) == content


def test_an_object_is_read_in_pieces_and_nothing_is_behind_its_end(store: ObjectStore) -> None:
    put(store, "files/a", b"0123456789")
    assert [store.read("files/a", start, 4) for start in (0, 4, 8, 10, 50)] == [
        b"0123", b"4567", b"89", b"", b"",
    ]  # fmt: skip


def test_content_is_put_from_its_beginning(store: ObjectStore) -> None:
    content = io.BytesIO(b"whole")
    content.seek(3)
    assert store.put("a", content).bytes == 5
    assert fetched(store, "a", b"whole") == b"whole"


def test_a_later_put_replaces_and_a_delete_removes(store: ObjectStore) -> None:
    put(store, "batches/b/1", b"first")
    put(store, "batches/b/1", b"second")
    assert fetched(store, "batches/b/1", b"second") == b"second"
    store.delete("batches/b/1")
    store.delete("batches/b/1")
    with pytest.raises(NoObject, match="'batches/b/1' is not in the store"):
        store.read("batches/b/1", 0, 1)
    with pytest.raises(NoObject):
        fetched(store, "batches/b/1", b"second")
    assert store.list() == []


def test_other_bytes_than_expected_are_damage(store: ObjectStore) -> None:
    put(store, "files/a", b"what is there")
    with pytest.raises(DamagedObject, match=sha(b"what was written")), io.BytesIO() as into:
        store.fetch("files/a", into, sha(b"what was written"))


def test_a_list_is_in_order_and_knows_sizes(store: ObjectStore) -> None:
    assert store.list("files/") == []
    for key in ("files/b", "files/a", "batches/x/1", "batches/x/2", "batches/y/1"):
        put(store, key, key.encode())
    assert [item.key for item in store.list("files/")] == ["files/a", "files/b"]
    assert [item.key for item in store.list("batches/x/")] == ["batches/x/1", "batches/x/2"]
    assert [item.key for item in store.list("batches/x")] == ["batches/x/1", "batches/x/2"]
    assert {item.key: item.bytes for item in store.list()}["batches/y/1"] == 11
    assert all(item.modified.tzinfo is not None for item in store.list())


@pytest.mark.parametrize("key", ["", "/", "../adapters/x", "files/..", "a//b", "files/a\0", "files/", ".a"])
def test_a_key_can_never_leave_its_place(store: ObjectStore, key: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.put(key, io.BytesIO(b"")),
        lambda: store.fetch(key, io.BytesIO(), ""),
        lambda: store.read(key, 0, 1),
        lambda: store.delete(key),
    ]
    for call in calls:
        with pytest.raises(InvalidKey):
            call()
    with pytest.raises(InvalidKey):
        store.list("../adapters")


def test_adapters_and_objects_do_not_see_each_other(
    store: ObjectStore, shelf: Shelf, make_adapter_folder: Callable[..., Path], tmp_path: Path
) -> None:
    put(store, "files/a", b"an object")
    digest = shelf.store.put(make_adapter_folder())
    put(store, "files/b", b"an object")
    assert shelf.store.list() == [digest]
    assert [item.key for item in store.list()] == ["files/a", "files/b"]
    assert shelf.store.sweep(older_than_s=-60.0) == 0
    assert store.sweep(older_than_s=-60.0) == 0
    shelf.store.fetch(digest, tmp_path / "cache")
    assert fetched(store, "files/b", b"an object") == b"an object"


def test_readers_see_one_whole_object_or_another(store: ObjectStore) -> None:
    versions = [bytes([letter]) * 300_000 for letter in b"abc"]
    put(store, "files/a", versions[0])
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            for version in versions:
                put(store, "files/a", version)

    writer = threading.Thread(target=churn)
    writer.start()
    try:
        for _ in range(20):
            assert store.read("files/a", 0, 400_000) in versions
    finally:
        stop.set()
        writer.join()


def test_folders_that_empty_while_others_write_lose_nothing(store: ObjectStore) -> None:
    def work(number: int) -> None:
        for _ in range(20):
            put(store, f"batches/b/{number}", b"part")
            assert store.read(f"batches/b/{number}", 0, 10) == b"part"
            store.delete(f"batches/b/{number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.list() == []


def test_a_store_that_is_away_says_so(store: ObjectStore, shelf: Shelf) -> None:
    put(store, "files/a", b"an object")
    shelf.take_away()
    calls: list[Callable[[], object]] = [
        lambda: store.put("files/b", io.BytesIO(b"")),
        lambda: store.read("files/a", 0, 1),
        lambda: fetched(store, "files/a", b"an object"),
        lambda: store.delete("files/a"),
    ]
    for call in calls:
        with pytest.raises((StoreUnavailable, NoObject)):
            call()
    with pytest.raises(StoreUnavailable):
        calls[0]()


def test_what_a_dead_writer_left_is_swept_once_it_is_old(
    store: ObjectStore, shelf: Shelf, tmp_path: Path
) -> None:
    put(store, "files/a", b"an object")
    if isinstance(shelf, S3Shelf):
        key = "some/prefix/objects/files/dead"
        shelf.client.create_multipart_upload(Bucket=shelf.bucket, Key=key)
    else:
        (tmp_path / "store" / "objects" / ".dead.tmp").write_bytes(b"half")
        assert store.sweep() == 0
    assert [item.key for item in store.list()] == ["files/a"]
    assert store.sweep(older_than_s=-60.0) == 1
    assert store.sweep(older_than_s=-60.0) == 0
    assert fetched(store, "files/a", b"an object") == b"an object"
