"""A running gateway makes the weeks of the log, and tells when a row found none."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from db import partitions, requests
from db.database import Database
from db.rows import RequestRecord
from serve.upkeep import Upkeep


def test_a_row_without_a_week_is_an_alarm_until_its_week_is_made(
    db: Database, make_request: Callable[..., RequestRecord]
) -> None:
    upkeep = Upkeep(db)
    upkeep.look()
    assert upkeep.stranded == 0
    requests.insert_batch(db, [make_request(started_at=datetime.now(UTC) - timedelta(days=60))])
    upkeep.look()
    assert upkeep.stranded == 2  # the request and its content
    assert set(partitions.default_rows(db).values()) == {0}
    upkeep.look()
    assert upkeep.stranded == 0


async def test_it_looks_as_soon_as_it_starts_and_outlives_an_absent_database(
    db: Database, make_request: Callable[..., RequestRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.upkeep.EVERY_S", 0.01)
    requests.insert_batch(db, [make_request(started_at=datetime.now(UTC) - timedelta(days=60))])
    absent = Database(db.url.replace("/test_", "/absent_"), timeout_s=0.05)
    gone, upkeep = Upkeep(absent), Upkeep(db)
    gone.start()
    upkeep.start()
    await asyncio.to_thread(_until_none_is_stranded, db)
    await upkeep.close()
    await gone.close()
    absent.close()
    assert gone.stranded == 0


def _until_none_is_stranded(db: Database) -> None:
    while sum(partitions.default_rows(db).values()):
        time.sleep(0.01)
