"""Named SQL: one file in db/queries per module, each query under a line `-- name: what it is for`.

Queries are bytes with psycopg's %(name)s parameters; the text never holds a value.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from psycopg.rows import class_row

from db.database import Connection
from db.errors import NotFound

Row = TypeVar("Row")

_FOLDER = Path(__file__).parent / "queries"
_HEAD = re.compile(r"^-- (?P<name>[a-z_]+): (?P<purpose>.+)$", re.MULTILINE)


@cache
def load(module: str) -> dict[str, bytes]:
    """Return the queries of db/queries/<module>.sql by name.

    Raises:
        ValueError: two queries share a name, or the file names none.
    """
    text = (_FOLDER / f"{module}.sql").read_text()
    heads = list(_HEAD.finditer(text))
    if not heads:
        raise ValueError(f"db/queries/{module}.sql holds no line '-- name: purpose'")
    queries: dict[str, bytes] = {}
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        name = head["name"]
        if name in queries:
            raise ValueError(f"db/queries/{module}.sql names {name!r} twice")
        body = text[head.end() : following.start() if following else len(text)]
        queries[name] = body.strip().rstrip(";").encode()
    return queries


def all_rows(
    connection: Connection, kind: type[Row], query: bytes, values: Mapping[str, Any] | None = None
) -> list[Row]:
    """Run a query whose columns are the fields of a record, and return the records."""
    with connection.cursor(row_factory=class_row(kind)) as cursor:
        return cursor.execute(query, values).fetchall()


def one_row(connection: Connection, kind: type[Row], query: bytes, what: str, key: Mapping[str, Any]) -> Row:
    """Run a query for one record by its key; `what` names the thing in NotFound."""
    found = all_rows(connection, kind, query, key)
    if not found:
        wanted = ", ".join(f"{name} {value!r}" for name, value in key.items())
        raise NotFound(f"no {what} has the {wanted}")
    return found[0]
