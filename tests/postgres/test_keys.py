import hashlib

import pytest

from db import keys
from db.database import Database
from db.errors import NotFound


def test_a_key_is_valid_until_it_is_revoked(db: Database) -> None:
    assert keys.active(db) == {}
    key = keys.create(db)
    assert keys.active(db) == {hashlib.sha256(key.encode()).hexdigest(): "default"}
    assert keys.revoke(db, key)
    assert not keys.revoke(db, key)
    assert keys.active(db) == {}


def test_a_key_needs_a_tenant_that_exists(db: Database) -> None:
    with pytest.raises(NotFound):
        keys.create(db, "nobody")
