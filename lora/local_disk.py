"""Fetched copies of adapters on this machine's disk: within a budget, the longest unused go first.

All replicas of a machine share one folder. A process does not remove what it reads itself; another one may,
so a reader whose files vanish fetches once more. The time of last use is the folder's own, so that it holds
across a restart. Copies set aside as damaged count too. Knows no base model and no memory.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lora.folders import is_complete, remove
from lora.format import is_digest
from lora.store import AdapterStore, local_folder

LEFTOVER_S = 3600.0
"""Age after which a half-written folder belongs to a process that died."""


@dataclass(frozen=True, slots=True, order=True)
class LocalCopy:
    """One folder. `used`: last use, unix seconds."""

    used: float
    bytes: int
    folder: Path


class LocalDisk:
    """Copies under one folder. Every method may be called from any thread."""

    def __init__(self, store: AdapterStore, folder: Path, budget: int) -> None:
        self._store, self._folder, self._budget = store, folder, budget
        self._readers: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def reading(self, digest: str) -> Iterator[Path]:
        """Where the copy is or comes; this process does not remove it before the end of the block."""
        folder = local_folder(digest, self._folder)
        with self._lock:
            self._readers[folder.name] += 1
        try:
            yield folder
        finally:
            with self._lock:
                self._readers[folder.name] -= 1
                self._readers += Counter()  # drops what counts nothing

    def fetch(self, digest: str) -> Path:
        """A copy that has just been compared with its digest. Raises what the store's fetch raises."""
        fresh = not is_complete(local_folder(digest, self._folder))
        with self.reading(digest):
            folder = self._store.fetch(digest, self._folder)
            with suppress(FileNotFoundError):  # gone again: whoever reads it will notice
                os.utime(folder)
            if fresh:
                self.trim()
        return folder

    def forget(self, digest: str) -> None:
        """Remove a copy; the store keeps its own."""
        remove(local_folder(digest, self._folder))

    def copies(self) -> dict[str, LocalCopy]:
        """What is here, by digest."""
        named = {f"sha256:{copy.folder.name}": copy for copy in self._scan(self._folder)}
        return {digest: copy for digest, copy in named.items() if is_digest(digest)}

    def trim(self) -> None:
        """Remove what died half-written, then the longest unused until the rest is within the budget."""
        with self._lock:
            copies = sorted([*self._scan(self._folder), *self._scan(self._folder / "quarantine")])
            total = sum(copy.bytes for copy in copies)
            for copy in copies:
                leftover = copy.folder.suffix == ".tmp"
                if leftover and copy.used > time.time() - LEFTOVER_S:
                    continue
                if leftover or (total > self._budget and copy.folder.name not in self._readers):
                    remove(copy.folder)
                    total -= copy.bytes

    def _scan(self, place: Path) -> Iterator[LocalCopy]:
        with suppress(FileNotFoundError):
            for entry in os.scandir(place):
                if entry.is_dir() and entry.name != "quarantine":
                    with suppress(FileNotFoundError):  # another process removes it just now
                        size = sum(file.stat().st_size for file in os.scandir(entry.path))
                        yield LocalCopy(entry.stat().st_mtime, size, Path(entry.path))
