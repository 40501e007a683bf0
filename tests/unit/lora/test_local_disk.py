"""The local copies stay within their budget, by last use, whoever else uses the folder."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lora.errors import DamagedCopy, NotInStore
from lora.format import WEIGHTS_FILE
from lora.local_disk import LEFTOVER_S, LocalDisk
from lora.store import FileStore, local_folder


class Shelf:
    """A store with four adapters of one size, and a folder of copies. Each use is a second after the last."""

    def __init__(self, root: Path, make_adapter: Callable[..., Any]) -> None:
        self.root = root
        self.store, self.cache = FileStore(root / "store"), root / "cache"
        self.digests = [self.store.put(make_adapter(seed).folder) for seed in range(4)]
        self.size = sum(file.stat().st_size for file in make_adapter(0).folder.iterdir() if _kept(file))
        self._now = time.time() - 1000

    def disk(self, copies: float) -> LocalDisk:
        return LocalDisk(self.store, self.cache, int(copies * self.size))

    def fetch(self, disk: LocalDisk, *numbers: int) -> None:
        for number in numbers:
            folder = disk.fetch(self.digests[number])
            self._now += 1
            if folder.exists():
                os.utime(folder, (self._now, self._now))

    def here(self) -> list[int]:
        return [n for n, digest in enumerate(self.digests) if local_folder(digest, self.cache).exists()]


def _kept(file: Path) -> bool:
    return file.name in ("adapter_config.json", "adapter_model.safetensors")


@pytest.fixture
def shelf(tmp_path: Path, make_adapter: Callable[..., Any]) -> Shelf:
    return Shelf(tmp_path, make_adapter)


def test_the_longest_unused_copy_goes_first(shelf: Shelf) -> None:
    disk = shelf.disk(2.5)
    shelf.fetch(disk, 0, 1, 0, 2)
    assert shelf.here() == [0, 2]
    assert set(disk.copies()) == {shelf.digests[0], shelf.digests[2]}
    assert sum(copy.bytes for copy in disk.copies().values()) <= 2.5 * shelf.size


def test_copies_and_their_last_use_hold_across_a_restart(shelf: Shelf) -> None:
    shelf.fetch(shelf.disk(9), 0, 1, 2, 0)
    shelf.disk(2.5).trim()
    assert shelf.here() == [0, 2]


def test_what_is_being_read_stays_however_small_the_budget(shelf: Shelf) -> None:
    disk = shelf.disk(1.5)
    with disk.reading(shelf.digests[0]) as folder:
        shelf.fetch(disk, 0, 1, 2)
        assert (folder / WEIGHTS_FILE).exists()
    shelf.fetch(disk, 3)
    assert shelf.here() == [3]


def test_a_copy_larger_than_the_budget_lives_until_the_next_one_comes(shelf: Shelf) -> None:
    disk = shelf.disk(0.1)
    shelf.fetch(disk, 0)
    assert shelf.here() == [0]
    shelf.fetch(disk, 1)
    assert shelf.here() == [1]


def test_a_damaged_copy_is_set_aside_counts_and_leaves_with_age(shelf: Shelf) -> None:
    disk = shelf.disk(2.5)
    shelf.fetch(disk, 0)
    (local_folder(shelf.digests[0], shelf.cache) / WEIGHTS_FILE).write_bytes(bytes(shelf.size))
    shelf.fetch(disk, 0)
    quarantine = shelf.cache / "quarantine"
    assert len(list(quarantine.iterdir())) == 1
    shelf.fetch(disk, 1)
    assert list(quarantine.iterdir()) == []
    assert shelf.here() == [0, 1]


def test_a_store_without_a_sound_copy_is_told(shelf: Shelf) -> None:
    disk = shelf.disk(9)
    file = next((shelf.root / "store" / "adapters").iterdir()) / WEIGHTS_FILE
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DamagedCopy):
        disk.fetch("sha256:" + file.parent.name)
    with pytest.raises(NotInStore):
        disk.fetch("sha256:" + file.parent.name)
    assert disk.copies() == {}


def test_folders_left_half_written_by_the_dead_are_removed(shelf: Shelf) -> None:
    disk = shelf.disk(9)
    shelf.fetch(disk, 0)
    old, new = shelf.cache / ".old.tmp", shelf.cache / ".new.tmp"
    for folder in (old, new):
        shutil.copytree(local_folder(shelf.digests[0], shelf.cache), folder)
    os.utime(new)
    os.utime(old, (time.time() - 2 * LEFTOVER_S,) * 2)
    disk.trim()
    assert (old.exists(), new.exists()) == (False, True)


def test_an_empty_disk_has_no_copies(shelf: Shelf) -> None:
    disk = shelf.disk(1)
    disk.trim()
    disk.forget(shelf.digests[0])
    assert disk.copies() == {}
