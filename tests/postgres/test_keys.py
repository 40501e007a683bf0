import hashlib

import pytest

from db import audit, keys, tenants
from db.database import Database
from db.errors import Conflict, InvalidValue, NotFound


def test_a_key_is_valid_until_it_is_revoked(db: Database) -> None:
    assert keys.active(db) == {}
    key = keys.create(db)
    assert keys.active(db) == {hashlib.sha256(key.encode()).hexdigest(): "default"}
    assert keys.revoke(db, key)
    assert not keys.revoke(db, key)
    assert keys.active(db) == {}


def test_making_and_ending_a_key_are_audited_without_the_key(db: Database) -> None:
    key = keys.create(db)
    keys.revoke(db, key)
    revoked, created = audit.events(db, limit=2)
    assert (created.action, revoked.action) == ("key.created", "key.revoked")
    assert created.subject == revoked.subject
    assert created.detail == {"tenant": "default", "role": "client"}
    assert audit.verify(db) == []


def test_a_key_needs_a_tenant_that_exists(db: Database) -> None:
    with pytest.raises(NotFound, match="nobody"):
        keys.create(db, "nobody")


def test_a_tenant_is_made_once(db: Database) -> None:
    tenants.create(db, "legal")
    key = keys.create(db, "legal")
    assert keys.active(db) == {hashlib.sha256(key.encode()).hexdigest(): "legal"}
    with pytest.raises(Conflict, match="legal"):
        tenants.create(db, "legal")
    with pytest.raises(InvalidValue):
        tenants.create(db, "")
