"""Everything that db raises on purpose, and the one translation from the driver's errors.

DbError
├── DatabaseAway          no connection; try again later
├── NotFound              a row that was named does not exist
├── Conflict              two rows, or two writers, want the same thing
│   └── LeaseLost         another gateway works on the batch now
├── InvalidValue          a value the tables refuse
├── IllegalTransition     an adapter cannot go from this status to that one
├── GateClosed            a promotion with blockers; carries them
├── EmptySnapshot         a frozen dataset would hold no rows; carries the counts at each filter
├── EmbeddedServerError   the embedded server cannot be set up, started or stopped
└── MigrationError        the database is not at a revision this code knows
"""

from collections.abc import Mapping

import psycopg
import psycopg_pool
from psycopg import errors as pg

from db.rows import BlockerRow

# SQLSTATEs that the functions and triggers of the migrations raise.
ILLEGAL_TRANSITION = "NR001"
GATE_CLOSED = "NR002"
NOT_FOUND = "NR003"
FROZEN = "NR004"
SHARE_TAKEN = "NR005"


class DbError(Exception):
    """Base of all errors of this package."""


class DatabaseAway(DbError):
    """The server cannot be reached, or went away in the middle."""


class NotFound(DbError):
    """A row that was named does not exist."""


class Conflict(DbError):
    """The write contradicts a row that exists, or another writer that was first."""


class LeaseLost(Conflict):
    """Another gateway has taken the batch over; what this one still knows of it does not count."""

    def __init__(self, batch_id: str, lease_no: int) -> None:
        super().__init__(f"lease {lease_no} of batch {batch_id!r} is over: another gateway has taken it")


class InvalidValue(DbError):
    """A constraint refused the value (the message names it), or a value is larger than Postgres takes."""


class IllegalTransition(DbError):
    """The status asked for cannot follow the present one."""


class GateClosed(DbError):
    """The promotion gate has reasons against this adapter."""

    def __init__(self, message: str, blockers: tuple[BlockerRow, ...] = ()) -> None:
        super().__init__(message)
        self.blockers = blockers


class EmptySnapshot(DbError):
    """No row passed the filters."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        left = ", ".join(f"{name} {count}" for name, count in counts.items())
        super().__init__(f"no rows are left for the snapshot; left after each filter: {left}")
        self.counts = dict(counts)


class EmbeddedServerError(DbError):
    """The embedded server cannot be set up, started or stopped."""


class MigrationError(DbError):
    """The schema could not be brought to the revision asked for."""


_BY_STATE: dict[str, type[DbError]] = {
    ILLEGAL_TRANSITION: IllegalTransition,
    GATE_CLOSED: GateClosed,
    NOT_FOUND: NotFound,
    FROZEN: InvalidValue,
    SHARE_TAKEN: Conflict,
}

# First match wins: from the particular class of the driver to the general one.
_BY_CLASS: tuple[tuple[type[Exception], type[DbError]], ...] = (
    (psycopg_pool.PoolTimeout, DatabaseAway),
    (psycopg_pool.PoolClosed, DatabaseAway),
    (psycopg_pool.TooManyRequests, DatabaseAway),
    (pg.ForeignKeyViolation, NotFound),
    (pg.UniqueViolation, Conflict),
    (pg.ExclusionViolation, Conflict),
    (pg.DeadlockDetected, Conflict),
    (pg.LockNotAvailable, Conflict),
    (pg.SerializationFailure, Conflict),
    (pg.ProgramLimitExceeded, InvalidValue),
    (psycopg.IntegrityError, InvalidValue),
    (psycopg.DataError, InvalidValue),
    (psycopg.OperationalError, DatabaseAway),
)


def translate(error: psycopg.Error) -> DbError | None:
    """Return our error for one of the driver's, or None when it is a fault of this code (bad SQL)."""
    told = error.diag.message_primary
    if isinstance(error, pg.ForeignKeyViolation):  # its first line names the constraint, the detail the value
        told = error.diag.message_detail or told
    message = told or str(error).strip() or type(error).__name__
    ours = _BY_STATE.get(error.sqlstate or "")
    if ours is None:
        ours = next((mapped for theirs, mapped in _BY_CLASS if isinstance(error, theirs)), None)
    return None if ours is None else ours(message)
