"""Objects in a folder of a file system, which several machines may share."""

import errno
import hashlib
import os
import shutil
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO
from uuid import uuid4

from lora.errors import DamagedObject, NoObject
from lora.store.disk import answering
from lora.store.objects import OBJECTS, Content, StoredObject, check_key, check_prefix, content_of
from lora.store.protocol import ABANDONED_S

_PIECE = 1 << 20
_HALF_DONE = ".tmp"


class FileObjects:
    """An ObjectStore.

    objects/<key>           an object, renamed into place when on disk
    objects/.<random>.tmp   one that is being written
    """

    def __init__(self, root: Path) -> None:
        self._root = root / OBJECTS

    def put(self, key: str, content: IO[bytes]) -> Content:
        target = self._root / check_key(key)
        staged = self._root / f".{uuid4().hex}{_HALF_DONE}"
        with answering():
            self._root.mkdir(parents=True, exist_ok=True)
            try:
                written = _copy(content, staged)
                _rename(staged, target)
            finally:
                staged.unlink(missing_ok=True)
        return written

    def fetch(self, key: str, into: IO[bytes], sha256: str) -> None:
        try:
            with answering(), (self._root / check_key(key)).open("rb") as file:
                shutil.copyfileobj(file, into, _PIECE)
        except (FileNotFoundError, IsADirectoryError):
            raise NoObject(key) from None
        found = content_of(into).sha256
        if found != sha256:
            raise DamagedObject(key, found, sha256)

    def read(self, key: str, start: int, size: int) -> bytes:
        try:
            with answering(), (self._root / check_key(key)).open("rb") as file:
                file.seek(start)
                return file.read(size)
        except FileNotFoundError:
            raise NoObject(key) from None

    def delete(self, key: str) -> None:
        target = self._root / check_key(key)
        with answering():
            target.unlink(missing_ok=True)
            for folder in target.relative_to(self._root).parents[:-1]:
                with suppress(OSError):  # others are in it, or somebody else has removed it
                    (self._root / folder).rmdir()

    def list(self, prefix: str = "") -> list[StoredObject]:
        folder = self._root / check_prefix(prefix).rpartition("/")[0]
        with answering():
            found = [item for file in folder.rglob("*") if (item := self._item(file)) is not None]
        return sorted((item for item in found if item.key.startswith(prefix)), key=lambda item: item.key)

    def sweep(self, older_than_s: float = ABANDONED_S) -> int:
        oldest, swept = time.time() - older_than_s, 0
        with answering():
            for file in self._root.glob(f".*{_HALF_DONE}"):
                with suppress(FileNotFoundError):  # its writer came to the end meanwhile
                    if file.stat().st_mtime <= oldest:
                        file.unlink()
                        swept += 1
        return swept

    def _item(self, file: Path) -> StoredObject | None:
        """None for a folder, for what is half done, and for what was removed just now."""
        try:
            facts = file.stat()
        except FileNotFoundError:
            return None
        if not file.is_file() or file.name.startswith("."):
            return None
        modified = datetime.fromtimestamp(facts.st_mtime, UTC)
        return StoredObject(file.relative_to(self._root).as_posix(), facts.st_size, modified)


def _copy(content: IO[bytes], target: Path) -> Content:
    content.seek(0)
    digest, size = hashlib.sha256(), 0
    with target.open("xb") as file:
        while piece := content.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return Content(size, digest.hexdigest())


def _rename(staged: Path, target: Path) -> None:
    """Its folder is made anew whenever somebody who deletes takes it away between."""
    while True:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            staged.rename(target)
            break
        except (FileNotFoundError, FileExistsError):  # the latter from mkdir: gone when it looked again
            if not staged.exists() or any(folder.is_file() for folder in target.parents):
                raise
    with suppress(FileNotFoundError):  # the object was deleted just now
        _flush(target.parent)


def _flush(folder: Path) -> None:
    """Bring the new name to the disk; file systems that flush no folders say so."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
