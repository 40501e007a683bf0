"""The weekly partitions of obs: made ahead, watched for gaps, dropped when their clock has run out."""

from datetime import UTC, datetime, timedelta

from psycopg import sql

from db.database import Database
from db.query import load

_Q = load("partitions")


def ensure(db: Database, weeks_ahead: int = 4) -> list[str]:
    """Make the missing weeks from the last one to `weeks_ahead`; return the names of those made.

    Rows that a DEFAULT partition caught for a week move into it. Each week is a transaction of its own.

    Raises:
        Conflict: a long reader or writer was in the way; the weeks before it are made, call again.
    """
    with db.transaction() as connection:
        missing = connection.execute(_Q["missing"], {"weeks_ahead": weeks_ahead}).fetchall()
    made = []
    for week in missing:
        with db.transaction() as connection:
            connection.execute(_Q["take_turns"])
            connection.execute(_Q["lock_timeout"])
            row = connection.execute(_Q["make"], week).fetchone()
        if row is not None and row["name"] is not None:
            made.append(row["name"])
    return made


def default_rows(db: Database) -> dict[str, int]:
    """Return the rows in each DEFAULT partition; any count above zero is an alarm."""
    with db.transaction() as connection:
        counted = connection.execute(_Q["default_rows"]).fetchall()
    return {row["parent"]: row["rows"] for row in counted}


def drop_expired(
    db: Database, *, content_days: int = 90, metadata_days: int = 400, now: datetime | None = None
) -> list[str]:
    """Drop the weeks of content and embeddings, and of request rows, that are past their clocks.

    Each goes in a transaction of its own.

    Raises:
        ValueError: content would outlive its metadata.
        Conflict: a partition was in use; those before it are gone, call again.
    """
    if content_days > metadata_days:
        raise ValueError(f"content_days {content_days} must not exceed metadata_days {metadata_days}")
    clocks = {
        "now": now or datetime.now(UTC),
        "content": timedelta(days=content_days),
        "metadata": timedelta(days=metadata_days),
    }
    with db.transaction() as connection:
        names = [row["name"] for row in connection.execute(_Q["expired"], clocks).fetchall()]
    for name in names:
        with db.transaction() as connection:
            connection.execute(_Q["lock_timeout"])
            connection.execute(sql.SQL("DROP TABLE obs.{}").format(sql.Identifier(name)))
    return names
