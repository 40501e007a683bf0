"""The thread that takes the spool to the database, and adopts spools whose gateways died.

It may fall behind for as long as the database is away: the spool keeps what was written. It knows the
database only as two functions that insert batches.
"""

import logging
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from db.errors import Conflict, DatabaseAway, DbError
from db.rows import FeedbackRecord, RequestRecord
from serve.record.packing import pack
from serve.record.reader import Batch, SpoolReader
from serve.record.spool import SpoolWriter, plain, try_lock

BATCH_ENTRIES = 500
IDLE_S = 0.5
ADOPT_EVERY_S = 5.0
MAX_BACKOFF_S = 5.0
REFUSED_FOLDER = "refused"

Record = TypeVar("Record", RequestRecord, FeedbackRecord)

logger = logging.getLogger(__name__)


class Sink(Protocol):
    """Where records go; both methods may raise DbError and are idempotent."""

    def requests(self, records: Sequence[RequestRecord]) -> None: ...

    def feedback(self, records: Sequence[FeedbackRecord]) -> None: ...


@dataclass(slots=True)
class RecorderState:
    """For /health and /metrics; written by the thread, read by anyone.

    `last_error` names the class of a trouble that lasts; its text, which may quote a record or an address, is
    in the log alone.
    """

    database_ok: bool = True
    stored: int = 0
    refused: int = 0
    interrupted: int = 0
    last_error: str | None = None


class Recorder:
    """Drains `writer`'s folder, and those of dead owners beside it, into `sink`."""

    def __init__(self, writer: SpoolWriter, sink: Sink) -> None:
        self.state = RecorderState()
        self._writer = writer
        self._sink = sink
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        """Begin to drain."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Drain what is there, then end; False if the time was too short (the spool keeps the rest)."""
        self._stop.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        reader = SpoolReader(self._writer.folder)
        since_adoption = ADOPT_EVERY_S
        ending = False
        while not ending:
            ending = self._stop.is_set()
            try:
                if since_adoption >= ADOPT_EVERY_S:
                    since_adoption = 0.0
                    self._adopt_all()
                self._writer.sync()
                while self._step(reader):
                    pass
            except (
                Exception
            ) as error:  # the thread must outlive a disk error or a bug: start over, idempotently
                logger.exception("recorder failed", extra={"action": "recorder_failed"})
                self.state.last_error = type(error).__name__
                reader = SpoolReader(self._writer.folder)
            if not ending:
                self._stop.wait(IDLE_S)
                since_adoption += IDLE_S
        if reader.drained and not reader.unread:
            shutil.rmtree(self._writer.folder)

    def _step(self, reader: SpoolReader) -> bool:
        """Move one batch; False when there was nothing, or when it was given up at the end."""
        batch = reader.read(BATCH_ENTRIES)
        if not batch or not self._store(batch):
            return False
        self._writer.released(reader.release())
        return True

    def _adopt_all(self) -> None:
        root = self._writer.folder.parent
        for folder in sorted(root.iterdir()):
            if folder == self._writer.folder or folder.name.startswith(".") or folder.name == REFUSED_FOLDER:
                continue
            lock = self._lock(folder)
            if lock is None:
                continue
            try:
                self._adopt(folder)
            finally:
                os.close(lock)

    def _lock(self, folder: Path) -> int | None:
        try:
            return try_lock(folder)
        except (FileNotFoundError, NotADirectoryError):  # adopted and removed by another meanwhile, or a file
            return None

    def _adopt(self, folder: Path) -> None:
        """Store all that a dead gateway left, its unfinished requests as interrupted, then remove it.

        A folder with bytes that cannot be read is put aside instead, for a person to look at.
        """
        reader = SpoolReader(folder)
        while batch := reader.read(BATCH_ENTRIES):
            if not self._store(batch):
                return
        left = reader.unfinished()
        if not self._store(Batch(requests=left, entries=len(left))):
            return
        self.state.interrupted += len(left)
        logger.info("adopted a spool, %d interrupted", len(left), extra={"action": "spool_adopted"})
        if reader.unread:
            self.state.refused += 1
            logger.error("damaged spool %s put aside", folder.name, extra={"action": "spool_damaged"})
            folder.rename(self._refused() / folder.name)
        else:
            shutil.rmtree(folder)

    def _store(self, batch: Batch) -> bool:
        """Insert a batch, waiting for the database for as long as it takes; False if told to stop first."""
        return self._insert(self._sink.requests, batch.requests) and self._insert(
            self._sink.feedback, batch.feedback
        )

    def _insert(self, insert: Callable[[Sequence[Record]], None], records: Sequence[Record]) -> bool:
        backoff = 0.1
        while records:
            try:
                insert(records)
            except (DatabaseAway, Conflict) as error:  # inserts here conflict by locks alone, which pass
                self._trouble(error)
                if self._stop.wait(backoff):
                    return False
                backoff = min(backoff * 2, MAX_BACKOFF_S)
            except DbError as error:
                if len(records) == 1:
                    self._refuse(records[0], error)
                    return True
                middle = len(records) // 2
                return self._insert(insert, records[:middle]) and self._insert(insert, records[middle:])
            else:
                self.state.database_ok, self.state.last_error = True, None
                self.state.stored += len(records)
                return True
        return True

    def _trouble(self, error: DbError) -> None:
        if self.state.last_error != type(error).__name__:
            logger.warning("records wait for the database: %s", error, extra={"action": "records_wait"})
        self.state.database_ok = not isinstance(error, DatabaseAway)
        self.state.last_error = type(error).__name__

    def _refuse(self, record: RequestRecord | FeedbackRecord, error: DbError) -> None:
        """Put a record that the tables refuse aside, so that it neither blocks the others nor is lost."""
        self.state.refused += 1
        self.state.last_error = type(error).__name__
        logger.error("record %s refused: %s", record.id, error, extra={"action": "record_refused"})
        (self._refused() / f"{record.id}.msgpack").write_bytes(pack([str(error), plain(record)]))

    def _refused(self) -> Path:
        folder = self._writer.folder.parent / REFUSED_FOLDER
        folder.mkdir(exist_ok=True)
        return folder
