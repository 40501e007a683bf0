"""What every adapter store must do, on a folder and on an S3-protocol server. A new one joins as a Shelf."""

import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from lora.errors import DamagedCopy, InvalidConfig, InvalidDigest, NotInStore, StoreUnavailable
from lora.format import read_adapter
from lora.store import AdapterStore
from tests.contract.shelves import Shelf, Spoil, altered, cut, fetch_again, lost

ABSENT = "sha256:" + "0" * 64


@pytest.fixture
def store(shelf: Shelf) -> AdapterStore:
    return shelf.store


@pytest.fixture
def make(make_adapter_folder: Callable[..., Path]) -> Callable[..., Path]:
    return make_adapter_folder


def _spoil(folder: Path) -> None:
    path = folder / "adapter_model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


def test_a_fetched_adapter_equals_the_one_that_was_put(
    store: AdapterStore, make: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make()
    digest = store.put(folder)
    assert digest == read_adapter(folder).digest
    fetched = store.fetch(digest, tmp_path / "cache")
    assert fetched.is_relative_to(tmp_path / "cache")
    assert read_adapter(fetched).digest == digest


def test_the_copy_outlives_its_source(store: AdapterStore, make: Callable[..., Path], tmp_path: Path) -> None:
    folder = make()
    digest = store.put(folder)
    _spoil(folder)
    assert read_adapter(store.fetch(digest, tmp_path / "cache")).digest == digest


def test_put_is_idempotent_and_list_is_sorted(store: AdapterStore, make: Callable[..., Path]) -> None:
    digests = [store.put(make(number)) for number in (1, 2, 3, 1, 2)]
    assert digests[0] == digests[3]
    assert store.list() == sorted(set(digests))
    assert all(store.exists(digest) for digest in digests)


def test_only_sound_adapters_are_kept(store: AdapterStore, make: Callable[..., Path]) -> None:
    folder = make()
    (folder / "adapter_config.json").write_text("not JSON")
    with pytest.raises(InvalidConfig):
        store.put(folder)
    assert store.list() == []


def test_absent_adapters(store: AdapterStore, tmp_path: Path) -> None:
    assert store.list() == []
    assert not store.exists(ABSENT)
    assert not store.delete(ABSENT)
    with pytest.raises(NotInStore, match=ABSENT):
        store.fetch(ABSENT, tmp_path / "cache")


@pytest.mark.parametrize("digest", ["", "../../etc", "sha256:../../etc", "sha256:" + "g" * 64])
def test_a_digest_can_never_be_a_path(store: AdapterStore, tmp_path: Path, digest: str) -> None:
    for call in (store.exists, store.delete, lambda text: store.fetch(text, tmp_path / "cache")):
        with pytest.raises(InvalidDigest):
            call(digest)


def test_delete_removes_and_put_restores(
    store: AdapterStore, make: Callable[..., Path], tmp_path: Path
) -> None:
    digest = store.put(make())
    assert store.delete(digest)
    assert not store.exists(digest)
    with pytest.raises(NotInStore):
        store.fetch(digest, tmp_path / "cache")
    assert store.put(make()) == digest
    assert store.exists(digest)


def test_a_fetched_copy_is_used_again_without_the_store(
    store: AdapterStore, make: Callable[..., Path], tmp_path: Path
) -> None:
    digest = store.put(make())
    first = store.fetch(digest, tmp_path / "cache")
    store.delete(digest)
    assert store.fetch(digest, tmp_path / "cache") == first


def test_a_damaged_local_copy_is_set_aside_and_fetched_anew(
    store: AdapterStore, make: Callable[..., Path], tmp_path: Path
) -> None:
    digest = store.put(make())
    cache = tmp_path / "cache"
    _spoil(store.fetch(digest, cache))
    assert read_adapter(store.fetch(digest, cache)).digest == digest
    assert len(list((cache / "quarantine").iterdir())) == 1


def test_many_puts_of_one_adapter_at_once_leave_one(store: AdapterStore, make: Callable[..., Path]) -> None:
    folders = [make(1, size=2048) for _ in range(8)]
    barrier = threading.Barrier(len(folders))

    def put(folder: Path) -> str:
        barrier.wait()
        return store.put(folder)

    with ThreadPoolExecutor(len(folders)) as pool:
        digests = set(pool.map(put, folders))
    assert store.list() == list(digests)


def test_readers_see_whole_adapters_or_none(
    store: AdapterStore, make: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make(1, size=4096)
    digest = store.put(folder)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            store.delete(digest)
            store.put(folder)

    def read(number: int) -> str:
        try:
            return read_adapter(store.fetch(digest, tmp_path / f"cache-{number}")).digest
        except NotInStore:
            return "absent"

    with ThreadPoolExecutor(3) as pool:
        churning = pool.submit(churn)
        seen = set(pool.map(read, range(30)))
        stop.set()
        churning.result()
    assert seen <= {digest, "absent"}


@pytest.mark.parametrize("how", [altered, cut, lost])
def test_a_damaged_copy_is_moved_aside_and_a_put_restores_it(
    shelf: Shelf, make: Callable[..., Path], tmp_path: Path, how: Spoil
) -> None:
    store, cache = shelf.store, tmp_path / "cache"
    old, new = store.put(make(1)), store.put(make(2))
    shelf.spoil(new, how)
    with pytest.raises(DamagedCopy, match=r"is damaged .* quarantined"):
        store.fetch(new, cache)
    assert store.list() == [old]
    assert shelf.quarantined() == 1
    assert _visible(cache) == []
    assert read_adapter(store.fetch(old, cache)).digest == old
    assert store.put(make(2)) == new
    assert read_adapter(store.fetch(new, cache)).digest == new


@pytest.mark.parametrize("how", [cut, lost])
def test_a_put_notices_that_the_copy_there_is_not_whole(
    shelf: Shelf, make: Callable[..., Path], tmp_path: Path, how: Spoil
) -> None:
    digest = shelf.store.put(make())
    shelf.spoil(digest, how)
    assert shelf.store.put(make()) == digest
    assert read_adapter(shelf.store.fetch(digest, tmp_path / "cache")).digest == digest
    assert shelf.quarantined() == 1


def test_without_its_marker_an_adapter_is_not_there(
    shelf: Shelf, make: Callable[..., Path], tmp_path: Path
) -> None:
    store = shelf.store
    digest = store.put(make())
    shelf.unmark(digest)
    assert not store.exists(digest)
    assert store.list() == []
    assert not store.delete(digest)
    with pytest.raises(NotInStore):
        store.fetch(digest, tmp_path / "cache")
    assert store.put(make()) == digest
    assert store.list() == [digest]


def test_a_sweep_removes_what_is_not_complete_once_it_is_old(
    shelf: Shelf, make: Callable[..., Path], tmp_path: Path
) -> None:
    store = shelf.store
    kept, dead = store.put(make(1)), store.put(make(2))
    whole = shelf.pieces()
    shelf.unmark(dead)
    assert store.sweep() == 0
    assert shelf.pieces() == whole
    assert store.sweep(older_than_s=-60.0) == 1
    assert shelf.pieces() == whole // 2
    assert read_adapter(store.fetch(kept, tmp_path / "cache")).digest == kept


def test_a_deleted_adapter_leaves_nothing(shelf: Shelf, make: Callable[..., Path]) -> None:
    shelf.store.delete(shelf.store.put(make()))
    assert shelf.pieces() == 0


def test_a_store_that_is_away_says_so_in_one_line(
    shelf: Shelf, make: Callable[..., Path], tmp_path: Path
) -> None:
    digest = shelf.store.put(make())
    fetched = shelf.store.fetch(digest, tmp_path / "cache")
    shelf.take_away()
    for call in (shelf.store.check, lambda: shelf.store.put(make(2))):
        with pytest.raises(StoreUnavailable, match=r"^the store is not available: .+$"):
            call()
    assert shelf.store.fetch(digest, tmp_path / "cache") == fetched


def test_a_store_that_is_there_answers(store: AdapterStore) -> None:
    store.check()
    assert store.list() == []


def test_several_processes_fetch_one_adapter_at_once(
    shelf: Shelf, make: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])  # for the processes: they import fetch_again anew
    digest = shelf.store.put(make(1, size=4096))
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        calls = [pool.submit(fetch_again, *shelf.again, digest, tmp_path / "cache") for _ in range(6)]
        folders = {call.result() for call in calls}
    assert len(folders) == 1
    assert read_adapter(Path(folders.pop())).digest == digest
    assert len(list((tmp_path / "cache").iterdir())) == 1


def _visible(cache: Path) -> list[str]:
    return [folder.name for folder in cache.iterdir() if folder.name != "quarantine"]
