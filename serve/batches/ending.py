"""The end of a batch: its answers become files of its tenant, and what was in between is deleted."""

import hashlib
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

import db.batches
from db.batches import AnswerFile, Ending
from db.database import Database
from db.rows import BatchRow
from lora.errors import StoreUnavailable
from lora.store import ObjectStore
from serve.batches.lines import Line
from serve.batches.outcome import left_out
from serve.batches.parts import join, part_key
from serve.files import key_of

_EXPIRED = ("batch_expired", "This request could not be executed before the completion window expired.")
_CANCELLED = ("batch_cancelled", "This request was not executed because the batch was cancelled.")


def finish(
    row: BatchRow, database: Database, objects: ObjectStore, lines: Sequence[Line], ending: Ending
) -> None:
    """Write the output and the error file, which has a line for each request that was left out. Blocks.

    Doing it again writes the same files. Raises LeaseLost, DatabaseAway, StoreUnavailable, or NoObject and
    DamagedObject where answers are lost.
    """
    db.batches.finalize(database, row.id, row.lease_no)
    parts = db.batches.parts(database, row.id)
    done = {number for part in parts for number in part.lines}
    reason = _EXPIRED if ending == "expired" else _CANCELLED
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        join(objects, row.id, parts, output, errors)
        for line in lines:
            if line.number not in done:
                errors.write(left_out(line, *reason).text)
        db.batches.finish(
            database,
            row.id,
            row.lease_no,
            ending,
            output=_kept(objects, row.id, "output", output),
            errors=_kept(objects, row.id, "error", errors),
        )
    with suppress(StoreUnavailable):  # then the next cleaning has them
        forget_parts(database, objects, row.id)


def forget_parts(database: Database, objects: ObjectStore, batch_id: str) -> None:
    """Delete the parts of a batch that has ended. Blocks. Raises DatabaseAway or StoreUnavailable."""
    for item in objects.list(part_key(batch_id, "")):
        objects.delete(item.key)
    db.batches.forget_parts(database, batch_id)


def _kept(objects: ObjectStore, batch_id: str, kind: str, content: IO[bytes]) -> AnswerFile | None:
    """None for an empty one. The id is the same each time, so nothing is left of an attempt that died."""
    if content.tell() == 0:
        return None
    file_id = f"file-{hashlib.sha256(f'{batch_id} {kind}'.encode()).hexdigest()[:32]}"
    written = objects.put(key_of(file_id), content)
    return AnswerFile(
        id=file_id, filename=f"{batch_id}_{kind}.jsonl", bytes=written.bytes, sha256=written.sha256
    )
