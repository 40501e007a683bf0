"""Tenants: who the keys of clients belong to. What one tenant keeps is shown to no other."""

from db.database import Database
from db.errors import Conflict
from db.query import load

_Q = load("tenants")


def create(db: Database, tenant: str) -> None:
    """Add a tenant.

    Raises:
        Conflict: there is one of this name.
        InvalidValue: it is empty, longer than 200 characters, or has control characters.
    """
    with db.transaction() as connection:
        if connection.execute(_Q["create"], {"tenant": tenant}).rowcount == 0:
            raise Conflict(f"there is a tenant {tenant!r} already")
