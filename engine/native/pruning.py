"""Compiled libraries that nobody uses any more are removed, so that the cache stays small.

A library's time of modification is that of its last use. Whoever uses or removes one holds its lock, so
none vanishes between the moment a process has found it and the moment it has loaded it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEPT = 4
"""Libraries kept beside the new one, the last used ones."""

_DAY_S = 86_400.0
_RECENT_S = _DAY_S
"""What was used since is kept beyond KEPT: another checkout may be at work with it."""
_STALE_S = 30 * _DAY_S


@contextmanager
def lock(library: Path, blocking: bool = True) -> Iterator[None]:
    """Held by one process at a time; a process that dies lets go of it.

    Raises BlockingIOError where another one holds it and `blocking` is false; OSError for a cache without
    the lock that cannot be written.
    """
    # A cache that is only read, as in an image, has its locks already.
    descriptor = os.open(library.with_suffix(".lock"), os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


def mark_used(library: Path) -> None:
    """Needs its lock. In a cache that is only read nothing is marked, and nothing removed."""
    if os.access(library, os.W_OK):
        os.utime(library)


def prune(cache: Path, new: Path) -> None:
    """Remove libraries other than `new` unused for 30 days, or for one day and beyond the KEPT last used."""
    others = sorted((path for path in cache.glob("noria-*.so") if path != new), key=_unused_s)
    for place, library in enumerate(others):
        limit = _STALE_S if place < KEPT else _RECENT_S
        if _unused_s(library) > limit:
            _remove(library, limit)
    for left in cache.glob("build-*"):
        if _unused_s(left) > _RECENT_S:
            shutil.rmtree(left, ignore_errors=True)


def _remove(library: Path, limit: float) -> None:
    try:
        with lock(library, blocking=False):
            if _unused_s(library) > limit:  # nobody took it up meanwhile
                for suffix in (".so", ".sha256", ".lock"):
                    library.with_suffix(suffix).unlink(missing_ok=True)
    except BlockingIOError:
        return


def _unused_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:  # another process was first to remove it
        return 0.0
