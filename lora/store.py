"""Where adapters' bytes live: a store keyed by content digest, and its form on a file system.

A store holds complete adapters only. Whoever reads one checks its bytes against the digest, so a copy that
rotted is found before it serves. It knows neither the registry nor the base models.
"""

from pathlib import Path
from typing import Protocol

from lora.errors import DamagedCopy, LoraError, NotInStore
from lora.folders import copy_adapter, is_complete, move_aside, publish, remove, staging_folder
from lora.format import (
    DEFAULT_LIMITS,
    Limits,
    adapter_files,
    check_digest,
    is_digest,
    present_files,
    read_adapter,
)

_SCHEME = "sha256:"


class AdapterStore(Protocol):
    """Content-addressed adapters. Every method may be called from any thread and any process."""

    def put(self, folder: Path) -> str:
        """Check the adapter in `folder`, keep a copy, return its digest. Doing it twice changes nothing.

        Raises what read_adapter raises.
        """

    def fetch(self, digest: str, into: Path) -> Path:
        """A checked local_folder(digest, into), copied there unless a sound copy is there.

        Raises NotInStore, or DamagedCopy when the store's own copy has other content; that copy is moved
        aside, and a later put of the same adapter restores it.
        """

    def exists(self, digest: str) -> bool:
        """Whether a complete adapter is filed under the digest."""

    def delete(self, digest: str) -> bool:
        """Remove an adapter; False if there was none."""

    def list(self) -> list[str]:
        """Digests of all complete adapters, sorted."""


class FileStore:
    """A store in a folder of a file system.

    adapters/<hex>/             the files of one adapter and a marker, renamed into place when on disk
    quarantine/<hex>-<random>/  copies whose bytes were wrong

    A local folder that fetch() copies into keeps its own quarantine/ beside the adapters.
    """

    def __init__(self, root: Path, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._root, self._limits = root, limits
        self._adapters = root / "adapters"

    def put(self, folder: Path) -> str:
        digest = read_adapter(folder, limits=self._limits).digest
        if self.exists(digest):
            return digest
        with staging_folder(self._adapters) as staged:
            copy_adapter(folder, staged, adapter_files(folder, self._limits))
            digest = read_adapter(staged, limits=self._limits).digest
            publish(staged, self._place(digest))
        return digest

    def fetch(self, digest: str, into: Path) -> Path:
        target = local_folder(digest, into)
        if is_complete(target):
            if self._found(target) == digest:
                return target
            move_aside(target, into / "quarantine")
        if not self.exists(digest):
            raise NotInStore(digest)
        with staging_folder(into) as staged:
            try:
                copy_adapter(self._place(digest), staged, present_files(self._place(digest)))
            except FileNotFoundError as error:
                raise NotInStore(digest) from error
            if (found := self._found(staged)) != digest:
                move_aside(self._place(digest), self._root / "quarantine")
                raise DamagedCopy(digest, found)
            publish(staged, target)
        return target

    def exists(self, digest: str) -> bool:
        return is_complete(self._place(digest))

    def delete(self, digest: str) -> bool:
        return self.exists(digest) and remove(self._place(digest))

    def list(self) -> list[str]:
        folders = self._adapters.iterdir() if self._adapters.is_dir() else ()
        names = [folder.name for folder in folders if is_complete(folder)]
        return sorted(_SCHEME + name for name in names if is_digest(_SCHEME + name))

    def _place(self, digest: str) -> Path:
        return self._adapters / _hex(digest)

    def _found(self, folder: Path) -> str:
        """The digest of what a folder really holds, or what is wrong with it."""
        try:
            return read_adapter(folder, limits=self._limits).digest
        except LoraError as error:
            return str(error)


def local_folder(digest: str, into: Path) -> Path:
    """Where fetch() puts an adapter under `into`."""
    return into / _hex(digest)


def _hex(digest: str) -> str:
    return check_digest(digest).removeprefix(_SCHEME)
