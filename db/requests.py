"""The record of what was served. Writes are idempotent by id, so a spool may be replayed freely."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from db.database import Database
from db.query import load
from db.rows import RequestRecord

_Q = load("requests")


def insert_batch(db: Database, records: Sequence[RequestRecord]) -> int:
    """Store requests and their contents in one statement; return how many were new.

    Characters that Postgres can not hold (NUL, lone surrogates) become U+FFFD: a model may write them.

    Raises:
        InvalidValue: a record the tables refuse; nothing of the batch is stored.
    """
    if not records:
        return 0
    rows = [storable(asdict(record)) for record in records]
    with db.transaction() as connection:
        return connection.execute(_Q["insert_batch"], {"records": Jsonb(rows)}).rowcount


def get(db: Database, request_id: str) -> dict[str, Any] | None:
    """Return the row of obs.inference_log (without its embedding), None when it has not arrived."""
    with db.transaction() as connection:
        row = connection.execute(_Q["log_row"], {"id": request_id}).fetchone()
    return None if row is None else row["row"]


def storable(value: Any) -> Any:
    """Return a JSON value that Postgres can hold.

    Times become ISO text, characters that it refuses U+FFFD, numbers that JSON lacks their names ("nan").
    """
    if isinstance(value, str):
        if "\x00" in value:
            value = value.replace("\x00", "\N{REPLACEMENT CHARACTER}")
        return (
            value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        )
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value
