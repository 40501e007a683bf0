"""Files of clients: seen by their tenant once complete, until they are removed or expire."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from db import files
from db.database import Database
from db.errors import InvalidValue, NotFound
from db.rows import FileRow


def add(db: Database, name: str, **given: Any) -> FileRow:
    values: dict[str, Any] = {
        "tenant": "default", "filename": f"{name}.jsonl", "purpose": "batch", "lifetime": None,
    }  # fmt: skip
    files.begin(db, name, **values | given)
    return files.complete(db, name, 12, "ab" * 32)


def age(db: Database, name: str, column: str, seconds: int) -> None:
    with db.transaction() as connection:
        query = (
            f"UPDATE serve.file SET {column} = now() - make_interval(secs => {seconds}) WHERE id = '{name}'"
        )
        connection.execute(query.encode())


def test_a_file_is_seen_once_its_bytes_have_come(db: Database) -> None:
    files.begin(db, "f1", tenant="default", filename="a.jsonl", purpose="batch", lifetime=None)
    with pytest.raises(NotFound):
        files.get(db, "default", "f1")
    assert files.page(db, "default", limit=10) == []
    shown = files.complete(db, "f1", 12, "ab" * 32)
    assert files.get(db, "default", "f1") == shown
    assert (shown.bytes, shown.sha256, shown.filename, shown.expires_at) == (12, "ab" * 32, "a.jsonl", None)
    with pytest.raises(NotFound):
        files.complete(db, "f1", 13, "cd" * 32)


def test_another_tenant_has_no_such_file(db: Database) -> None:
    add(db, "f1")
    with pytest.raises(NotFound):
        files.get(db, "other", "f1")
    assert files.page(db, "other", limit=10) == []
    assert not files.remove(db, "other", "f1")
    assert files.page(db, "default", limit=10, after="f1") == []


def test_pages_go_both_ways_and_by_purpose(db: Database) -> None:
    for number in range(5):
        add(db, f"f{number}", purpose="batch_output" if number == 2 else "batch")

    def ids(**wanted: Any) -> list[str]:
        return [row.id for row in files.page(db, "default", **wanted)]

    assert ids(limit=3) == ["f4", "f3", "f2"]
    assert ids(limit=3, after="f2") == ["f1", "f0"]
    assert ids(limit=3, order="asc") == ["f0", "f1", "f2"]
    assert ids(limit=3, order="asc", after="f2") == ["f3", "f4"]
    assert ids(limit=3, purpose="batch_output") == ["f2"]
    assert ids(limit=3, after="nosuch") == []


def test_a_removed_file_is_gone_until_its_bytes_are(db: Database) -> None:
    add(db, "f1")
    files.forget(db, "f1")
    assert files.get(db, "default", "f1").id == "f1"
    assert files.remove(db, "default", "f1")
    assert not files.remove(db, "default", "f1")
    with pytest.raises(NotFound):
        files.get(db, "default", "f1")
    assert files.gone(db) == ["f1"]
    files.forget(db, "f1")
    assert files.gone(db) == []


def test_an_expired_file_is_gone(db: Database) -> None:
    kept = add(db, "kept", lifetime=timedelta(hours=1))
    assert kept.expires_at is not None
    assert timedelta(minutes=59) < kept.expires_at - datetime.now(UTC) < timedelta(minutes=61)
    add(db, "old", lifetime=timedelta(hours=1))
    age(db, "old", "expires_at", 1)
    with pytest.raises(NotFound):
        files.get(db, "default", "old")
    assert [row.id for row in files.page(db, "default", limit=10)] == ["kept"]
    assert files.gone(db) == ["old"]


def test_an_upload_that_never_ends_is_gone_after_a_day(db: Database) -> None:
    files.begin(db, "f1", tenant="default", filename="a", purpose="batch", lifetime=None)
    assert files.gone(db) == []
    age(db, "f1", "created_at", 90_000)
    assert files.gone(db) == ["f1"]


def test_a_purpose_that_is_not_known_is_refused(db: Database) -> None:
    with pytest.raises(InvalidValue):
        add(db, "f1", purpose="vision")
