"""The consent ledger: whose traffic may train. Each entry is audited in the same transaction."""

from db.database import Database
from db.query import all_rows, load
from db.rows import ConsentRow

_Q = load("consent")


def grant(db: Database, tenant: str, user_key: str | None = None, *, actor: str = "noria") -> ConsentRow:
    """Let the tenant's traffic train, or with `user_key` one user's.

    Raises:
        NotFound: no such tenant.
    """
    return _add(db, tenant, user_key, "granted", actor)


def withdraw(db: Database, tenant: str, user_key: str | None = None, *, actor: str = "noria") -> ConsentRow:
    """Take consent back, for the whole tenant or one user; snapshots frozen later leave the rows out.

    Raises:
        NotFound: no such tenant.
    """
    return _add(db, tenant, user_key, "withdrawn", actor)


def history(db: Database, tenant: str) -> list[ConsentRow]:
    """Return the ledger of a tenant, oldest first."""
    with db.transaction() as connection:
        return all_rows(connection, ConsentRow, _Q["history"], {"tenant": tenant})


def _add(db: Database, tenant: str, user_key: str | None, action: str, actor: str) -> ConsentRow:
    with db.transaction(actor=actor) as connection:
        entry = {"tenant": tenant, "user_key": user_key, "action": action}
        return all_rows(connection, ConsentRow, _Q["add"], entry)[0]
