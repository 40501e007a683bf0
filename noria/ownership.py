"""Who owns a data folder: one process at a time, for as long as it lives and holds <data>/instance.lock.

The kernel drops the lock of a process that dies, however it dies; the pid in the file tells whom to ask.
It knows nothing of what the owner runs.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from noria.errors import InstanceError, InstanceRunning

_FILE = "instance.lock"
_TRIES = 5
_PAUSE_S = 0.05


def make_folder(folder: Path) -> None:
    """Make a folder and its parents. Raises InstanceError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InstanceError(f"the folder {folder} cannot be made: {error.strerror}") from error


@contextmanager
def owned(data: Path) -> Iterator[None]:
    """Own the data folder, made when missing, for the length of the block.

    Raises InstanceRunning if another process owns it, InstanceError if it cannot be written.
    """
    make_folder(data)
    try:
        lock = (data / _FILE).open("a")
    except OSError as error:
        raise InstanceError(f"the data folder {data} cannot be written: {error.strerror}") from error
    with lock:
        if not _locked(lock):
            raise InstanceRunning(
                f"{data} belongs to a running instance; stop it with `noria down --data {data}`"
            )
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def owner_of(data: Path) -> int | None:
    """The pid of the process that owns the data folder, or None; what a dead one left does not count."""
    for _ in range(_TRIES):
        try:
            with (data / _FILE).open("r") as lock:
                if _taken(lock):
                    return None
                pid = lock.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if pid:
            return int(pid)
        time.sleep(_PAUSE_S)  # it owns the folder since this moment and has not said who it is
    raise InstanceError(f"the owner of {data} does not tell its process id in {data / _FILE}")


def _locked(lock: IO[str]) -> bool:
    """Take the lock if nobody owns it; `owner_of` may hold it for an instant."""
    for _ in range(_TRIES):
        if _taken(lock):
            return True
        time.sleep(_PAUSE_S)
    return False


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
