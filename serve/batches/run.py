"""One batch under one lease, from where it stands to its end."""

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

import db.batches
import db.files
from db.batches import Ending
from db.database import Database
from db.errors import NotFound
from db.rows import BatchRow
from lora.background import BackgroundThreads
from lora.errors import DamagedObject, NoObject
from lora.store import ObjectStore
from serve.batches.answerer import Answerer
from serve.batches.ending import finish
from serve.batches.lines import Checked, Line, Problem, check_lines, read_line
from serve.batches.parts import PartWriter
from serve.batches.places import Places
from serve.caller import Caller
from serve.files import key_of
from serve.ids import uuid7

_GONE = "the input file cannot be read: it was removed, has expired or is damaged"


@dataclass(frozen=True, slots=True)
class Tools:
    """What all batches of a gateway share."""

    database: Database
    objects: ObjectStore
    threads: BackgroundThreads
    answerer: Answerer
    places: Places
    max_line_bytes: int


class BatchRun:
    """`row` is the batch as it was claimed."""

    def __init__(self, row: BatchRow, tools: Tools) -> None:
        self._row = row
        self._tools = tools
        self._stopped = asyncio.Event()
        if row.status == "cancelling":
            self._stopped.set()

    def stop(self) -> None:
        """The batch is being cancelled: abort what is under way, and put together what is there."""
        self._stopped.set()

    async def run(self) -> None:
        """Returns at the end of the batch. Raises LeaseLost, or whatever keeps it from going on."""
        with tempfile.TemporaryFile() as file:
            checked = await self._tools.threads.run(lambda: self._fetched(file))
            if not checked.problems:
                await self._go_through(checked, file)

    def _fetched(self, file: IO[bytes]) -> Checked:
        """The input, checked, in `file`; the batch is told what came of it. Blocks."""
        row, tools = self._row, self._tools
        try:
            input_ = db.files.get(tools.database, row.tenant, row.input_file_id)
            tools.objects.fetch(key_of(input_.id), file, input_.sha256)
        except (NotFound, NoObject, DamagedObject):
            checked = Checked(problems=[Problem(None, "invalid_input_file", _GONE, "input_file_id")])
        else:
            checked = check_lines(file, row.endpoint, tools.max_line_bytes)
        total = len(checked.lines)
        if checked.problems:
            errors = [problem.plain() for problem in checked.problems]
            db.batches.reject(tools.database, row.id, row.lease_no, total=total, errors=errors)
        else:
            db.batches.accept(tools.database, row.id, row.lease_no, total=total, model=checked.model)
        return checked

    async def _go_through(self, checked: Checked, file: IO[bytes]) -> None:
        row, tools = self._row, self._tools
        parts = await tools.threads.run(lambda: db.batches.parts(tools.database, row.id))
        done = {number for part in parts for number in part.lines}
        writer = PartWriter(row, tools.database, tools.objects, tools.threads)
        async with asyncio.TaskGroup() as group:
            group.create_task(writer.run())
            left = [line for line in checked.lines if line.number not in done]
            ending = await self._answer(left, file, writer)
            writer.end()
        await tools.threads.run(lambda: finish(row, tools.database, tools.objects, checked.lines, ending))

    async def _answer(self, lines: Sequence[Line], file: IO[bytes], writer: PartWriter) -> Ending:
        """Have lines answered until all are, the batch is cancelled, or its time is over."""
        left_s = (self._row.expires_at - datetime.now(UTC)).total_seconds()
        if not lines or self._stopped.is_set():
            return "completed"
        if left_s <= 0:
            return "expired"
        source = iter(lines)
        work = asyncio.gather(*(self._work(source, file, writer) for _ in range(self._tools.places.most)))
        stopped = asyncio.ensure_future(self._stopped.wait())
        both: set[asyncio.Future[Any]] = {work, stopped}
        try:
            await asyncio.wait(both, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            return "completed" if work.done() or self._stopped.is_set() else "expired"
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _work(self, source: Iterator[Line], file: IO[bytes], writer: PartWriter) -> None:
        for line in source:
            await writer.room()
            async with self._tools.places.one():
                request = read_line(file, line)
                outcome = await self._tools.answerer.answer(line, request, self._caller)
            writer.add(outcome)

    def _caller(self) -> Caller:
        """Who created the batch asks."""
        row = self._row
        return Caller(
            id=uuid7(),
            tenant=row.tenant,
            user=row.user_key,
            conversation=row.conversation,
            source=row.source,
            background=True,
        )
