"""Reads the audit ledger. It is written by triggers, in the transactions it tells of."""

from db.database import Database
from db.query import all_rows, load
from db.rows import AuditEventRow, AuditProblem

_Q = load("audit")


def verify(db: Database) -> list[AuditProblem]:
    """Check every hash and link of the chain; empty when it holds.

    A chain cut off at its end looks whole: keep the newest hash elsewhere to notice that.
    """
    with db.transaction() as connection:
        return all_rows(connection, AuditProblem, _Q["verify"])


def events(db: Database, limit: int = 100) -> list[AuditEventRow]:
    """Return the newest events, newest first."""
    with db.transaction() as connection:
        return all_rows(connection, AuditEventRow, _Q["events"], {"limit": limit})
