"""What every adapter store must do. A new store joins by one entry in STORES."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from lora.errors import DamagedCopy, InvalidConfig, InvalidDigest, NotInStore
from lora.format import read_adapter
from lora.store import AdapterStore, FileStore

STORES: dict[str, Callable[[Path], AdapterStore]] = {"file": lambda root: FileStore(root / "store")}
ABSENT = "sha256:" + "0" * 64


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> AdapterStore:
    return STORES[request.param](tmp_path)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """make(number, size=32): an adapter folder; equal arguments give equal content in a new folder."""
    made = iter(range(1000))

    def build(number: int = 1, size: int = 32) -> Path:
        folder = tmp_path / f"made-{next(made)}"
        folder.mkdir()
        config = {"peft_type": "LORA", "r": 2, "lora_alpha": number, "target_modules": ["q_proj"]}
        (folder / "adapter_config.json").write_text(json.dumps(config))
        random, key = np.random.default_rng(number), "base_model.model.model.layers.0.self_attn.q_proj"
        tensors = {
            f"{key}.lora_A.weight": random.normal(size=(2, size)).astype(np.float32),
            f"{key}.lora_B.weight": random.normal(size=(size, 2)).astype(np.float32),
        }
        save_file(tensors, folder / "adapter_model.safetensors")
        return folder

    return build


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


def test_a_damaged_copy_in_a_file_store_is_quarantined_and_put_restores_it(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    store = FileStore(tmp_path / "store")
    digest = store.put(make())
    _spoil(tmp_path / "store" / "adapters" / digest.removeprefix("sha256:"))
    with pytest.raises(DamagedCopy, match=r"is damaged .* quarantined"):
        store.fetch(digest, tmp_path / "cache")
    assert not store.exists(digest)
    assert len(list((tmp_path / "store" / "quarantine").iterdir())) == 1
    assert store.put(make()) == digest
    assert read_adapter(store.fetch(digest, tmp_path / "cache")).digest == digest


def test_a_file_store_ignores_what_a_crash_left_behind(make: Callable[..., Path], tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    digest = store.put(make())
    place = tmp_path / "store" / "adapters" / digest.removeprefix("sha256:")
    (place / "complete").unlink()
    assert not store.exists(digest)
    assert store.list() == []
    assert store.put(make()) == digest
    assert store.list() == [digest]
