"""The key with which a command calls its own server: the admin key, or one made for that call."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from db import keys
from db.database import Database
from noria.settings import Settings
from serve.gateway import KEYS_EVERY_S


@contextmanager
def client_key(settings: Settings, db: Database) -> Iterator[str]:
    """A key that every gateway takes. One that is made here is of the default tenant, and revoked after."""
    if settings.server.admin_key or not settings.server.require_api_key:
        yield settings.server.admin_key or "none"
        return
    key = keys.create(db)
    try:
        time.sleep(2 * KEYS_EVERY_S)  # by then each gateway has read it
        yield key
    finally:
        keys.revoke(db, key)
