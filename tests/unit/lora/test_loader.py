"""From a digest in a store to weights for one base model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.adapter_targets import AdapterTargets
from engine.base_tensors import BaseTensors
from lora.errors import NotInStore, WrongBase
from lora.loader import AdapterLoader, BaseModel
from lora.local_disk import LocalDisk
from lora.store import FileStore, local_folder

Make = Callable[..., AdapterLoader]


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


@pytest.fixture
def loader(store: FileStore, tmp_path: Path, targets: AdapterTargets, base: BaseTensors) -> Make:
    def make(*names: str) -> AdapterLoader:
        model = BaseModel(targets=targets, tensors=base, digest="sha256:" + "b" * 64, names=names)
        disk = LocalDisk(store, tmp_path / "cache", 1 << 30)
        return AdapterLoader(disk, model, max_rank=64, dtype=torch.bfloat16)

    return make


def test_weights_come_in_the_dtype_asked_for(
    store: FileStore, loader: Make, make_adapter: Callable[..., Any]
) -> None:
    made = make_adapter()
    digest = store.put(made.folder)
    weights = loader("tiny").fit(digest).read()
    assert weights.digest == digest
    for name, pair in weights.modules.items():
        assert torch.equal(pair.a, made.pairs[name].a.bfloat16())
        assert torch.equal(pair.b, made.pairs[name].b.bfloat16())


def test_another_base_is_refused_unless_forced(
    store: FileStore, loader: Make, make_adapter: Callable[..., Any]
) -> None:
    digest = store.put(make_adapter().folder)
    with pytest.raises(WrongBase):
        loader("other").fit(digest).read()
    assert loader("other").fit(digest, force=True).read().digest == digest


def test_forget_removes_the_local_copy_and_load_fetches_it_again(
    store: FileStore, loader: Make, make_adapter: Callable[..., Any], tmp_path: Path
) -> None:
    digest = store.put(make_adapter().folder)
    subject = loader("tiny")
    subject.forget(digest)
    subject.fit(digest).read()
    folder = local_folder(digest, tmp_path / "cache")
    assert folder.is_dir()
    subject.forget(digest)
    assert not folder.exists()
    assert subject.fit(digest).read().digest == digest


def test_weights_do_not_depend_on_the_files_after_the_load(
    store: FileStore, loader: Make, make_adapter: Callable[..., Any], tmp_path: Path
) -> None:
    made = make_adapter()
    digest = store.put(made.folder)
    weights = loader("tiny").fit(digest).read()
    file = local_folder(digest, tmp_path / "cache") / "adapter_model.safetensors"
    file.write_bytes(bytes(file.stat().st_size))
    name, pair = next(iter(weights.modules.items()))
    assert torch.equal(pair.a, made.pairs[name].a.bfloat16())


def test_a_copy_that_vanishes_during_the_load_is_fetched_once_more(
    store: FileStore, loader: Make, make_adapter: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, subject, calls = store.put(make_adapter().folder), loader("tiny"), []
    fetch = store.fetch

    def racing(wanted: str, into: Path) -> Path:
        folder = fetch(wanted, into)
        calls.append(folder)
        if len(calls) == 1:
            (folder / "adapter_model.safetensors").unlink()
            (folder / "complete").unlink()
        return folder

    monkeypatch.setattr(store, "fetch", racing)
    assert subject.fit(digest).read().digest == digest
    assert len(calls) == 2


def test_an_absent_digest_is_told(loader: Make) -> None:
    with pytest.raises(NotInStore):
        loader("tiny").fit("sha256:" + "0" * 64).read()


def test_a_copy_that_vanishes_while_memory_is_waited_for_is_fetched_once_more(
    store: FileStore, loader: Make, make_adapter: Callable[..., Any]
) -> None:
    digest, subject = store.put(make_adapter().folder), loader("tiny")
    fitted = subject.fit(digest)
    subject.forget(digest)
    assert fitted.read().nbytes == fitted.nbytes
    assert set(subject.copies()) == {digest}
