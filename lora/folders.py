"""Adapter folders on a file system, written so that nobody ever sees half of one.

A folder is complete when its marker is there. It is built under a temporary name on the same file system,
flushed to disk, marked, and only then renamed to its final name. What is not `durable`, a copy that can be
had again, goes without the flush: if a crash tears it, its digest tells.
"""

import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MARKER = "complete"
_PIECE = 1 << 20


def is_complete(folder: Path) -> bool:
    """Whether the folder was written to its end."""
    return (folder / _MARKER).is_file()


@contextmanager
def staging_folder(parent: Path) -> Iterator[Path]:
    """A new empty folder under `parent`; what is left of it afterwards is removed."""
    folder = parent / f".{uuid.uuid4().hex}.tmp"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copy_adapter(source: Path, target: Path, names: Iterable[str], *, durable: bool = True) -> None:
    """Copy these files of an adapter. Raises FileNotFoundError if `source` lacks one."""
    for name in names:
        _copy_file(source / name, target / name)
        if durable:
            _flush(target / name)


def publish(staged: Path, target: Path, *, durable: bool = True) -> None:
    """Mark `staged` as complete and give it its final name; a complete folder already there stays."""
    (staged / _MARKER).write_bytes(b"")
    if durable:
        _flush(staged / _MARKER)
        _flush(staged)
    try:
        staged.rename(target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        if not is_complete(target):
            remove(target)
            staged.rename(target)
    if durable:
        _flush(target.parent)


def remove(folder: Path) -> bool:
    """Take a folder away in one step; False if it was not there."""
    if not folder.exists():
        return False
    with staging_folder(folder.parent) as rubbish:
        try:
            folder.rename(rubbish / folder.name)
        except FileNotFoundError:
            return False
    return True


def move_aside(folder: Path, quarantine: Path, name: str) -> None:
    """Keep a bad folder as `name` and something random in `quarantine`, for a person to look at."""
    quarantine.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        folder.rename(quarantine / f"{name}-{uuid.uuid4().hex[:8]}")


def _copy_file(source: Path, target: Path) -> None:
    """In pieces: the system call that copies a file whole would not give the processor up before its end."""
    with source.open("rb") as reader, target.open("wb") as writer:
        while piece := reader.read(_PIECE):
            writer.write(piece)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
