"""Answers of a batch on their way to the object store, and back from there as files.

A part is one object: lines of the output file, then lines of the error file. It counts from the moment the
database has its row, which only the holder of the batch's lease can add; an object without one is rubbish.
"""

import asyncio
import hashlib
import io
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import IO, TypeVar
from uuid import uuid4

import db.batches
from db.database import Database
from db.errors import DatabaseAway
from db.rows import BatchPart, BatchRow, StoredPart
from lora.background import BackgroundThreads
from lora.errors import DamagedObject, StoreUnavailable
from lora.store import ObjectStore
from serve.batches.outcome import Outcome
from serve.batches.pauses import growing_pauses

GATHER_S = 1.0
"""How long answers are gathered for one part: as much work is done again after a crash."""
MOST = 256
"""Answers of a part."""
MOST_WAITING = 1024
"""Answers in memory above which no further line begins, while the store or the database is away."""
LONGEST_WAIT_S = 10.0
"""Between two tries to write a part."""

AWAY = (StoreUnavailable, DatabaseAway)
T = TypeVar("T")

logger = logging.getLogger(__name__)


class PartWriter:
    """Takes the outcomes of one batch under one lease."""

    def __init__(
        self, row: BatchRow, database: Database, objects: ObjectStore, threads: BackgroundThreads
    ) -> None:
        self._row = row
        self._database = database
        self._objects = objects
        self._threads = threads
        self._arrived: asyncio.Queue[Outcome | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self._room.set()
        self._waiting = 0

    def add(self, outcome: Outcome) -> None:
        """An answer to be kept."""
        self._arrived.put_nowait(outcome)
        self._waiting += 1
        if self._waiting >= MOST_WAITING:
            self._room.clear()

    def end(self) -> None:
        """No further answer comes."""
        self._arrived.put_nowait(None)

    async def room(self) -> None:
        """Returns while not too many answers wait."""
        await self._room.wait()

    async def run(self) -> None:
        """Write parts until the end. Waits for the store and the database. Raises LeaseLost."""
        ended = False
        while not ended:
            gathered, ended = await self._gather()
            if gathered:
                await self._write(gathered)
                self._waiting -= len(gathered)
                self._room.set()

    async def _gather(self) -> tuple[list[Outcome], bool]:
        """What comes within GATHER_S of the first, and whether the end has come."""
        first = await self._arrived.get()
        gathered = [first] if first is not None else []
        try:
            async with asyncio.timeout(GATHER_S):
                while first is not None and len(gathered) < MOST:
                    following = await self._arrived.get()
                    if following is None:
                        return gathered, True
                    gathered.append(following)
        except TimeoutError:
            pass
        return gathered, first is None

    async def _write(self, gathered: Sequence[Outcome]) -> None:
        content, part = _part_of(gathered)
        key = part_key(self._row.id, part.name)

        def keep() -> None:
            self._objects.put(key, io.BytesIO(content))
            db.batches.add_part(self._database, self._row.id, self._row.lease_no, part)

        await patiently(self._row.id, keep, self._threads)


async def patiently(batch_id: str, work: Callable[[], T], threads: BackgroundThreads) -> T:
    """What `work` returns, again and again while the store or the database is away."""
    pauses = growing_pauses(LONGEST_WAIT_S)
    while True:
        try:
            return await threads.run(work)
        except AWAY as error:
            logger.warning("batch %s waits: %s", batch_id, error, extra={"action": "batch_waits"})
        await asyncio.sleep(next(pauses))


def part_key(batch_id: str, name: str) -> str:
    """Where a part is in the object store."""
    return f"batches/{batch_id}/{name}"


def join(
    objects: ObjectStore, batch_id: str, parts: Iterable[StoredPart], output: IO[bytes], errors: IO[bytes]
) -> None:
    """Put the lines of all parts into the two files. Blocks.

    Raises NoObject, DamagedObject or StoreUnavailable.
    """
    for part in parts:
        key = part_key(batch_id, part.name)
        content = objects.read(key, 0, part.output_bytes + part.error_bytes)
        if (found := hashlib.sha256(content).hexdigest()) != part.sha256:
            raise DamagedObject(key, found, part.sha256)
        output.write(content[: part.output_bytes])
        errors.write(content[part.output_bytes :])


def _part_of(gathered: Sequence[Outcome]) -> tuple[bytes, BatchPart]:
    good = b"".join(item.text for item in gathered if not item.failed)
    bad = b"".join(item.text for item in gathered if item.failed)
    content = good + bad
    part = BatchPart(
        name=uuid4().hex,
        sha256=hashlib.sha256(content).hexdigest(),
        output_bytes=len(good),
        error_bytes=len(bad),
        lines=[item.number for item in gathered],
        completed=sum(not item.failed for item in gathered),
        failed=sum(item.failed for item in gathered),
        input_tokens=sum(item.input_tokens for item in gathered),
        cached_tokens=sum(item.cached_tokens for item in gathered),
        output_tokens=sum(item.output_tokens for item in gathered),
    )
    return content, part
