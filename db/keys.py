"""API keys: made here, shown once, kept as digests only."""

import hashlib
import secrets

from db.database import Database
from db.query import load

_Q = load("keys")
_PREFIX = "nk-"


def active(db: Database) -> dict[str, str]:
    """Return the tenants of the valid client keys, by the hexadecimal sha256 of each key."""
    with db.transaction() as connection:
        rows = connection.execute(_Q["active"]).fetchall()
    return {row["digest"]: row["tenant"] for row in rows}


def create(db: Database, tenant: str = "default") -> str:
    """Make a client key of a tenant and return it; it can not be read again.

    Raises:
        NotFound: no such tenant.
    """
    key = _PREFIX + secrets.token_urlsafe(32)
    with db.transaction() as connection:
        connection.execute(_Q["create"], {"tenant": tenant, "digest": _digest(key)})
    return key


def revoke(db: Database, key: str) -> bool:
    """End a key's validity; False when it was not valid."""
    with db.transaction() as connection:
        return connection.execute(_Q["revoke"], {"digest": _digest(key)}).rowcount == 1


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
