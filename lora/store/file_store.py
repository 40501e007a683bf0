"""A store in a folder of a file system, which several machines may share."""

import os
import time
from pathlib import Path

from lora.errors import DamagedCopy, NotInStore, StoreUnavailable
from lora.folders import copy_adapter, is_complete, move_aside, publish, remove, staging_folder
from lora.format import DEFAULT_LIMITS, Limits, adapter_files, is_digest, present_files, read_adapter
from lora.store.disk import answering
from lora.store.local_copy import QUARANTINE, SCHEME, Spoiled, content_of, fetch_copy, hexadecimal
from lora.store.protocol import ABANDONED_S


class FileStore:
    """An AdapterStore.

    adapters/<hex>/             the adapter's files and a marker, renamed into place when on disk
    quarantine/<hex>-<random>/  copies whose bytes were wrong

    A local folder that fetch() copies into keeps its own quarantine/ beside the adapters.
    """

    def __init__(self, root: Path, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._root, self._limits = root, limits
        self._adapters = root / "adapters"

    @property
    def url(self) -> str:
        return self._root.absolute().as_uri()

    def put(self, folder: Path) -> str:
        digest = read_adapter(folder, limits=self._limits).digest
        with answering():
            if self.exists(digest):
                if content_of(self._place(digest), self._limits) == digest:
                    return digest
                self._move_aside(digest)
            with staging_folder(self._adapters) as staged:
                copy_adapter(folder, staged, adapter_files(folder, self._limits))
                digest = read_adapter(staged, limits=self._limits).digest
                publish(staged, self._place(digest))
        return digest

    def fetch(self, digest: str, into: Path) -> Path:
        try:
            return fetch_copy(digest, into, lambda staged: self._copy(digest, staged), self._limits)
        except DamagedCopy:
            self._move_aside(digest)
            raise

    def exists(self, digest: str) -> bool:
        with answering():
            return is_complete(self._place(digest))

    def delete(self, digest: str) -> bool:
        with answering():
            return self.exists(digest) and remove(self._place(digest))

    def sweep(self, older_than_s: float = ABANDONED_S) -> int:
        with answering():
            folders = list(self._adapters.iterdir()) if self._adapters.is_dir() else []
            oldest = time.time() - older_than_s
            abandoned = [
                folder for folder in folders if not is_complete(folder) and folder.stat().st_mtime <= oldest
            ]
            return sum(remove(folder) for folder in abandoned)

    def check(self) -> None:
        with answering():
            place = self._adapters
            while not place.exists():
                place = place.parent
            if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
                raise StoreUnavailable("its folder can not be written")

    def list(self) -> list[str]:
        with answering():
            folders = self._adapters.iterdir() if self._adapters.is_dir() else ()
            names = [folder.name for folder in folders if is_complete(folder)]
        return sorted(SCHEME + name for name in names if is_digest(SCHEME + name))

    def _place(self, digest: str) -> Path:
        return self._adapters / hexadecimal(digest)

    def _copy(self, digest: str, staged: Path) -> None:
        """Raises NotInStore or Spoiled."""
        if not self.exists(digest):
            raise NotInStore(digest)
        place = self._place(digest)
        try:
            with answering():
                copy_adapter(place, staged, present_files(place), durable=False)
        except FileNotFoundError as error:
            if self.exists(digest):
                raise Spoiled("a file is missing") from error
            raise NotInStore(digest) from error

    def _move_aside(self, digest: str) -> None:
        with answering():
            move_aside(self._place(digest), self._root / QUARANTINE, hexadecimal(digest))
