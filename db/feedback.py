"""Feedback on served requests: append-only, latest wins, welcome before its request row has arrived."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta

from psycopg.types.json import Jsonb

from db.database import Database
from db.query import all_rows, load
from db.requests import storable
from db.rows import FeedbackRecord

_Q = load("feedback")


def insert_batch(db: Database, records: Sequence[FeedbackRecord]) -> int:
    """Store acts of feedback; return how many were new (by id and by idempotency key).

    Raises:
        InvalidValue: a value that does not fit its kind; nothing of the batch is stored.
    """
    if not records:
        return 0
    rows = [storable(asdict(record)) for record in records]
    with db.transaction() as connection:
        return connection.execute(_Q["insert_batch"], {"records": Jsonb(rows)}).rowcount


def current(db: Database, request_id: str) -> list[FeedbackRecord]:
    """Return the standing act of each kind on a request."""
    with db.transaction() as connection:
        return all_rows(connection, FeedbackRecord, _Q["current"], {"request_id": request_id})


def history(db: Database, request_id: str) -> list[FeedbackRecord]:
    """Return every act on a request, oldest first."""
    with db.transaction() as connection:
        return all_rows(connection, FeedbackRecord, _Q["history"], {"request_id": request_id})


def orphans(db: Database, grace_s: float = 300) -> list[FeedbackRecord]:
    """Return acts stored longer ago than the grace time whose request has not arrived."""
    with db.transaction() as connection:
        return all_rows(connection, FeedbackRecord, _Q["orphans"], {"grace": timedelta(seconds=grace_s)})
