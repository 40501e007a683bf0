"""Reads a spool folder back: entries in order, requests joined from their two halves.

The same reader follows a living writer and drains a dead one's folder. It knows no database.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from db.rows import FeedbackRecord, RequestRecord
from serve.record.packing import unpack
from serve.record.spool import HEADER, SUFFIX, segment_path

MAX_ENTRY_BYTES = 64 << 20
BATCH_BYTES = 32 << 20
"""A batch travels to the database as one JSON value, which may have a quarter of a gigabyte."""


@dataclass(slots=True)
class Batch:
    """Complete records, ready for the database."""

    requests: list[RequestRecord] = field(default_factory=list)
    feedback: list[FeedbackRecord] = field(default_factory=list)
    entries: int = 0

    def __bool__(self) -> bool:
        return bool(self.entries)


class SpoolReader:
    """Follows the segments of one folder; one that cannot be read to its end is passed over and kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = min(_segments(folder), default=1)
        self._offset = 0
        self._file: BinaryIO | None = None
        self._open: dict[str, tuple[int, dict[str, Any]]] = {}
        self._released = True
        self._damaged: set[int] = set()

    def read(self, limit: int, *, max_bytes: int = BATCH_BYTES) -> Batch:
        """The next complete records, from at most `limit` entries; an empty batch at the present end.

        The entry with which `max_bytes` are reached is the last one.
        """
        batch = Batch()
        try:
            for kind, values in self._entries(limit, max_bytes):
                batch.entries += 1
                self._released = False
                self._apply(kind, values, batch)
        finally:
            self._shut()
        return batch

    def unfinished(self) -> list[RequestRecord]:
        """Requests begun and not ended: those in flight, or interrupted if their writer is dead."""
        return [RequestRecord(**values) for _, values in self._open.values()]

    @property
    def drained(self) -> bool:
        """Whether all that was read is in the database and no request is half read."""
        return self._released and not self._open

    @property
    def unread(self) -> bool:
        """Whether bytes were left out: a damaged entry, or half an entry at the end."""
        path = segment_path(self._folder, self._number)
        return bool(self._damaged) or (path.exists() and path.stat().st_size > self._offset)

    def release(self) -> int:
        """Delete the segments that nothing needs any more; returns their bytes. Damaged ones stay.

        Call it once the batches read so far are in the database.
        """
        self._released = True
        needed = min((number for number, _ in self._open.values()), default=self._number)
        freed = 0
        for number in sorted(_segments(self._folder)):
            if number >= min(needed, self._number):
                break
            if number not in self._damaged:
                path = segment_path(self._folder, number)
                freed += path.stat().st_size
                path.unlink()
        return freed

    def _apply(self, kind: str, values: dict[str, Any], batch: Batch) -> None:
        if kind == "begin":
            self._open[values["id"]] = (self._number, values)
        elif kind == "end":
            begun = self._open.pop(values["id"], None)
            if begun is not None:
                batch.requests.append(RequestRecord(**(begun[1] | values)))
        else:
            batch.feedback.append(FeedbackRecord(**values))

    def _entries(self, limit: int, max_bytes: int) -> Iterator[tuple[str, dict[str, Any]]]:
        for _ in range(limit):
            payload = self._next() if max_bytes > 0 else None
            if payload is None:
                return
            max_bytes -= len(payload)
            kind, values = unpack(payload)
            yield kind, values

    def _next(self) -> bytes | None:
        """The next entry's payload, crossing into the next segment where this one has ended."""
        while True:
            # Looked up before reading: what was written before the next segment began is then complete.
            last = not segment_path(self._folder, self._number + 1).exists()
            payload = self._read_here()
            if payload is not None or last:
                return payload
            if self._file is not None and self._file.read(1):
                self._damaged.add(self._number)
            self._shut()
            self._number, self._offset = self._number + 1, 0

    def _read_here(self) -> bytes | None:
        """The entry at the present place, or None where none is complete and sound."""
        if self._file is None:
            path = segment_path(self._folder, self._number)
            if not path.exists():
                return None
            self._file = path.open("rb")
        self._file.seek(self._offset)
        header = self._file.read(HEADER.size)
        if len(header) < HEADER.size:
            return None
        size, checksum = HEADER.unpack(header)
        payload = self._file.read(size) if size <= MAX_ENTRY_BYTES else b""
        if len(payload) < size or zlib.crc32(payload) != checksum:
            self._file.seek(self._offset)
            return None
        self._offset += HEADER.size + size
        return payload

    def _shut(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _segments(folder: Path) -> list[int]:
    return [int(path.stem) for path in folder.glob(f"*{SUFFIX}")]
