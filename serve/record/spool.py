"""Append-only spool of request and feedback records: what is written here survives a kill of the process.

    <root>/<owner>/lock             held (flock) by the living owner
    <root>/<owner>/00000001.spool   entries, oldest first; a new file begins at SEGMENT_BYTES

An entry is 8 bytes (length and CRC-32 of the payload, big-endian) and a msgpack payload [kind, fields]:

    begin     every field of a request's record, as if it had been interrupted
    end       the id, and the fields that are different now
    feedback  every field of a feedback record

A begin without an end, once its owner is dead, is an interrupted request. The spool knows no database.
"""

import fcntl
import os
import struct
import threading
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from db.rows import FeedbackRecord, RequestRecord
from serve.errors import SpoolFull
from serve.record.packing import pack

SEGMENT_BYTES = 8 << 20
HEADER = struct.Struct(">II")
LOCK_FILE = "lock"
SUFFIX = ".spool"

Kind = Literal["begin", "end", "feedback"]


def segment_path(folder: Path, number: int) -> Path:
    """Where a segment lies."""
    return folder / f"{number:08d}{SUFFIX}"


def plain(record: RequestRecord | FeedbackRecord) -> dict[str, Any]:
    """The fields of a record by name, not copied."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def try_lock(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock, or None while its owner lives."""
    lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _own_folder(root: Path) -> tuple[Path, int]:
    """A fresh folder that is locked before anybody else can see it as one of an owner's."""
    name = uuid4().hex
    hidden = root / f".{name}"
    hidden.mkdir(parents=True)
    lock = try_lock(hidden)
    assert lock is not None, "a folder with a fresh random name has no other owner"
    return hidden.rename(root / name), lock


class SpoolWriter:
    """The writing end, one for each gateway process.

    Writes go straight to the file (no buffer in this process), so they survive a kill -9; `sync` makes
    them survive the machine. `max_bytes` bounds the folder: then new requests are not recorded, while
    requests begun may still end.
    """

    def __init__(self, root: Path, *, max_bytes: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder, self._lock = _own_folder(root)
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._mutex = threading.Lock()  # the recorder's thread syncs and releases, the loop writes
        self._released_bytes = 0
        self._closed_bytes = 0
        self._number = 0
        self._file = -1
        self._size = 0
        self._dirty = False
        self._rotate()

    @property
    def bytes(self) -> int:
        """Bytes on disk that the database does not have yet, or that were not deleted yet."""
        return self._closed_bytes + self._size - self._released_bytes

    def begin(self, record: RequestRecord) -> None:
        """Raises SpoolFull."""
        self._check_room()
        self._write("begin", plain(record))

    def end(self, begun: RequestRecord, record: RequestRecord) -> None:
        """Raises SpoolFull only when the disk refuses."""
        before, after = plain(begun), plain(record)
        changed = {name: value for name, value in after.items() if value != before[name]}
        self._write("end", {"id": record.id} | changed)

    def feedback(self, record: FeedbackRecord) -> None:
        """Raises SpoolFull."""
        self._check_room()
        self._write("feedback", plain(record))

    def sync(self) -> None:
        """Wait until the disk has what was written; called off the loop."""
        with self._mutex:
            if not self._dirty:
                return
            self._dirty = False
            file = os.dup(self._file)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def released(self, size: int) -> None:
        """A segment of this size was deleted."""
        with self._mutex:
            self._released_bytes += size

    def close(self) -> None:
        """Give the folder up: from now on another process may read it to its end and remove it."""
        with self._mutex:
            os.close(self._file)
            os.close(self._lock)
            self._file, self._dirty = -1, False  # a late write must not meet whoever has the descriptor next

    def _check_room(self) -> None:
        if self.bytes >= self._max_bytes:
            raise SpoolFull(f"the spool holds {self.bytes} bytes; at most {self._max_bytes} are allowed")

    def _write(self, kind: Kind, values: dict[str, Any]) -> None:
        payload = pack([kind, values])
        entry = HEADER.pack(len(payload), zlib.crc32(payload)) + payload
        with self._mutex:
            try:
                if self._size and self._size + len(entry) > self._segment_bytes:
                    self._rotate()
                written = os.write(self._file, entry)
            except OSError as error:
                raise SpoolFull(f"the spool's disk refused {len(entry)} bytes: {error}") from error
            if written != len(entry):
                # Half an entry would hide all that follow it in this file.
                os.ftruncate(self._file, self._size)
                raise SpoolFull(f"the spool's disk took {written} of {len(entry)} bytes")
            self._size += written
            self._dirty = True

    def _rotate(self) -> None:
        """Go on in a new segment; where none can be made the present one stays. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL | os.O_CLOEXEC
        fresh = os.open(segment_path(self.folder, self._number + 1), flags, 0o600)
        full, self._file = self._file, fresh
        self._number += 1
        self._closed_bytes += self._size
        self._size = 0
        if full >= 0:
            try:
                os.fsync(full)
            finally:
                os.close(full)
