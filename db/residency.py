"""Where adapters are now, as the replicas tell it, so that SQL can ask.

Soft state: a crash of the server empties it.
"""

from collections.abc import Sequence
from dataclasses import asdict

from psycopg.types.json import Jsonb

from db.database import Database
from db.query import all_rows, load
from db.rows import ResidencyRow

_Q = load("residency")


def record(db: Database, rows: Sequence[ResidencyRow]) -> None:
    """Make serve.residency hold these rows and no others, in one statement."""
    told = [asdict(row) | {"last_use": row.last_use and row.last_use.isoformat()} for row in rows]
    with db.transaction() as connection:
        connection.execute(_Q["record"], {"rows": Jsonb(told)})


def rows(db: Database) -> list[ResidencyRow]:
    """Return where adapters were at the last look, by replica and digest."""
    with db.transaction() as connection:
        return all_rows(connection, ResidencyRow, _Q["rows"])
