"""Batches of requests: their state, and the lease under which one gateway at a time works on a batch.

Whoever claims a batch gets a number with it, and what comes with an older number is refused: a gateway that
was away for long can change nothing any more. The answers themselves are in the object store.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Literal

from psycopg.types.json import Jsonb

from db.database import Connection, Database
from db.errors import Conflict, LeaseLost
from db.query import all_rows, load, one_row
from db.requests import storable
from db.rows import BatchPart, BatchRow, Json, NewBatch, StoredPart

_Q = load("batches")

Ending = Literal["completed", "expired"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFile:
    """A file of answers whose bytes are in the object store."""

    id: str
    filename: str
    bytes: int
    sha256: str


def create(db: Database, new: NewBatch) -> BatchRow:
    """Add a batch that waits for a gateway.

    Raises:
        InvalidValue: a value the table refuses.
    """
    metadata = None if new.metadata is None else Jsonb(storable(new.metadata))
    with db.transaction() as connection:
        return all_rows(connection, BatchRow, _Q["create"], asdict(new) | {"metadata": metadata})[0]


def get(db: Database, tenant: str, batch_id: str) -> BatchRow:
    """Return one batch.

    Raises:
        NotFound: the tenant has no such batch.
    """
    with db.transaction() as connection:
        return one_row(connection, BatchRow, _Q["get"], "batch", {"id": batch_id, "tenant": tenant})


def page(db: Database, tenant: str, *, limit: int, after: str | None = None) -> list[BatchRow]:
    """Return the first `limit` batches behind the batch `after`, the newest first."""
    with db.transaction() as connection:
        wanted = {"tenant": tenant, "limit": limit, "after": after}
        return all_rows(connection, BatchRow, _Q["page"], wanted)


def cancel(db: Database, tenant: str, batch_id: str) -> BatchRow:
    """Ask whoever works on a batch to end it; asking twice changes nothing.

    Raises:
        NotFound: the tenant has no such batch.
        Conflict: it has ended, or is about to.
    """
    key = {"id": batch_id, "tenant": tenant}
    with db.transaction() as connection:
        if found := all_rows(connection, BatchRow, _Q["cancel"], key):
            return found[0]
        row = one_row(connection, BatchRow, _Q["get"], "batch", key)
    raise Conflict(f"batch {batch_id!r} is {row.status}; allowed: one that is validating or in_progress")


def claim(db: Database, seconds: float) -> BatchRow | None:
    """Take the lease of the oldest batch that nobody works on, for so long; None where there is none."""
    with db.transaction() as connection:
        found = all_rows(connection, BatchRow, _Q["claim"], {"seconds": seconds})
    return found[0] if found else None


def renew(db: Database, batch_id: str, lease_no: int, seconds: float) -> BatchRow:
    """Hold the lease for so long from now on; 0 gives it back. Returns the batch as it is now.

    Raises:
        LeaseLost: it was lost before.
    """
    key = {"id": batch_id, "lease_no": lease_no, "seconds": seconds}
    with db.transaction() as connection:
        found = all_rows(connection, BatchRow, _Q["renew"], key)
    if not found:
        raise LeaseLost(batch_id, lease_no)
    return found[0]


def accept(db: Database, batch_id: str, lease_no: int, *, total: int, model: str | None) -> None:
    """Begin with `total` requests. Raises LeaseLost."""
    with _holding(db, batch_id, lease_no) as connection:
        connection.execute(_Q["accept"], {"id": batch_id, "total": total, "model": model})


def reject(db: Database, batch_id: str, lease_no: int, *, total: int, errors: Sequence[Json]) -> None:
    """End a batch whose input is not sound. Raises LeaseLost."""
    with _holding(db, batch_id, lease_no) as connection:
        values = {"id": batch_id, "total": total, "errors": Jsonb(storable(list(errors)))}
        connection.execute(_Q["reject"], values)


def add_part(db: Database, batch_id: str, lease_no: int, part: BatchPart) -> None:
    """Count a part that is in the object store; doing it twice changes nothing. Raises LeaseLost."""
    with _holding(db, batch_id, lease_no) as connection:
        connection.execute(_Q["add_part"], asdict(part) | {"id": batch_id, "lines": list(part.lines)})


def parts(db: Database, batch_id: str) -> list[StoredPart]:
    """Return the parts of a batch in order of arrival."""
    with db.transaction() as connection:
        return all_rows(connection, StoredPart, _Q["parts"], {"id": batch_id})


def finalize(db: Database, batch_id: str, lease_no: int) -> None:
    """No further part will come. Raises LeaseLost."""
    with _holding(db, batch_id, lease_no) as connection:
        connection.execute(_Q["finalize"], {"id": batch_id})


def finish(
    db: Database,
    batch_id: str,
    lease_no: int,
    ending: Ending,
    *,
    output: AnswerFile | None,
    errors: AnswerFile | None,
) -> None:
    """Show the files and end the batch: as `ending` says, or as cancelled where that was asked for.

    Raises:
        LeaseLost: another gateway has taken it.
    """
    with _holding(db, batch_id, lease_no) as connection:
        for file in (output, errors):
            if file is not None:
                connection.execute(_Q["add_file"], asdict(file) | {"id": batch_id, "file_id": file.id})
        values = {
            "id": batch_id,
            "status": ending,
            "output_file_id": output and output.id,
            "error_file_id": errors and errors.id,
        }
        connection.execute(_Q["finish"], values)


def leftovers(db: Database) -> list[str]:
    """Return ids of batches that have ended and whose parts are not forgotten."""
    with db.transaction() as connection:
        return [row["id"] for row in connection.execute(_Q["leftovers"]).fetchall()]


def forget_parts(db: Database, batch_id: str) -> None:
    """Take away the rows of parts that are no longer in the object store."""
    with db.transaction() as connection:
        connection.execute(_Q["forget_parts"], {"id": batch_id})


def unfinished(db: Database) -> set[str]:
    """Return ids of the batches that have not ended."""
    with db.transaction() as connection:
        return {row["id"] for row in connection.execute(_Q["unfinished"]).fetchall()}


@contextmanager
def _holding(db: Database, batch_id: str, lease_no: int) -> Iterator[Connection]:
    """A transaction in which nobody else takes the lease, nor changes the batch. Raises LeaseLost."""
    with db.transaction() as connection:
        held = connection.execute(_Q["held"], {"id": batch_id, "lease_no": lease_no}).fetchone()
        if held is None:
            raise LeaseLost(batch_id, lease_no)
        yield connection
