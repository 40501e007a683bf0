"""Files of clients: what they are called, whose they are, and how long they stay. Their bytes are elsewhere.

A tenant sees its own alone; one that has expired is as one that never was.
"""

from datetime import timedelta
from typing import Literal

from db.database import Database
from db.errors import NotFound
from db.query import all_rows, load, one_row
from db.rows import FilePurpose, FileRow

_Q = load("files")

GONE_AT_ONCE = 1000


def begin(
    db: Database,
    file_id: str,
    *,
    tenant: str,
    filename: str,
    purpose: FilePurpose,
    lifetime: timedelta | None,
) -> None:
    """Note a file whose bytes are on their way; nobody sees it before `complete`.

    Raises:
        InvalidValue: a value the table refuses.
    """
    with db.transaction() as connection:
        connection.execute(
            _Q["begin"],
            {
                "id": file_id,
                "tenant": tenant,
                "filename": filename,
                "purpose": purpose,
                "lifetime": lifetime,
            },
        )


def complete(db: Database, file_id: str, size: int, sha256: str) -> FileRow:
    """Show the file, whose bytes have come.

    Raises:
        NotFound: it took so long that it was given up.
    """
    with db.transaction() as connection:
        values = {"id": file_id, "bytes": size, "sha256": sha256}
        found = all_rows(connection, FileRow, _Q["complete"], values)
    if not found:
        raise NotFound(f"no file with the id {file_id!r} is being uploaded")
    return found[0]


def get(db: Database, tenant: str, file_id: str) -> FileRow:
    """Return one file.

    Raises:
        NotFound: the tenant has no such file.
    """
    with db.transaction() as connection:
        return one_row(connection, FileRow, _Q["get"], "file", {"id": file_id, "tenant": tenant})


def page(
    db: Database,
    tenant: str,
    *,
    limit: int,
    after: str | None = None,
    order: Literal["asc", "desc"] = "desc",
    purpose: str | None = None,
) -> list[FileRow]:
    """Return the first `limit` files behind the file `after` by time of creation; none for an unknown one."""
    wanted = {"tenant": tenant, "limit": limit, "after": after, "purpose": purpose}
    with db.transaction() as connection:
        query = _Q["page_down"] if order == "desc" else _Q["page_up"]
        return all_rows(connection, FileRow, query, wanted)


def remove(db: Database, tenant: str, file_id: str) -> bool:
    """Hide a file from now on; False when the tenant has none such. Its bytes are then `gone`."""
    with db.transaction() as connection:
        return connection.execute(_Q["remove"], {"id": file_id, "tenant": tenant}).rowcount == 1


def gone(db: Database, limit: int = GONE_AT_ONCE) -> list[str]:
    """Return ids of files whose bytes are to be deleted, the oldest first."""
    with db.transaction() as connection:
        return [row["id"] for row in connection.execute(_Q["gone"], {"limit": limit}).fetchall()]


def forget(db: Database, file_id: str) -> None:
    """Take the row away of a file whose bytes are deleted."""
    with db.transaction() as connection:
        connection.execute(_Q["forget"], {"id": file_id})
