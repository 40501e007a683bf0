"""The registry's router side against a real server: the split equals SQL's, changes arrive, losses heal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest

from db import promotion, registry
from db.database import Database
from db.errors import DatabaseAway
from db.rows import AdapterRow
from lora.registry import RegistrySnapshot, bucket
from lora.registry_source import DatabaseSource
from lora.watcher import RegistryWatcher

PATIENCE_S = 30.0
CUT_CONNECTIONS = b"""SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                      WHERE datname = current_database() AND pid <> pg_backend_pid()"""


@pytest.fixture
def source(url: str) -> Iterator[DatabaseSource]:
    source = DatabaseSource(url)
    yield source
    source.close()


def _cut(url: str) -> None:
    """End every other connection to the database, as a restart of the server does."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(CUT_CONNECTIONS)


def test_the_split_equals_that_of_sql(
    db: Database, source: DatabaseSource, add_adapter: Callable[..., AdapterRow]
) -> None:
    add_adapter("c1")
    add_adapter("c2")
    promotion.start_canary(db, "c1", 20)
    promotion.start_canary(db, "c2", 12.5)
    snapshot = RegistrySnapshot.from_rows(source.snapshot())
    target = snapshot.resolve("assistant")
    assert target is not None
    keys = [f"user-{number}é" for number in range(1000)]
    with db.transaction() as connection:
        found = connection.execute(
            b"SELECT a.* FROM unnest(%s::text[]) WITH ORDINALITY k (key, place)"
            b" CROSS JOIN LATERAL serve.assign('assistant', key) a ORDER BY place",
            (keys,),
        ).fetchall()
    chosen = [snapshot.assign(target, key) for key in keys]
    assert [(c.adapter_id, c.variant, c.bucket) for c in chosen] == [
        (row["adapter_id"], row["variant"], row["bucket"]) for row in found
    ]
    assert {c.adapter_id for c in chosen} == {"c1", "c2", None}
    experiment = snapshot.endpoints["assistant"].experiment
    assert chosen[0].bucket == bucket("assistant", experiment, keys[0])


def test_a_change_wakes_the_wait(
    db: Database, source: DatabaseSource, add_adapter: Callable[..., AdapterRow]
) -> None:
    source.wait(0.01)
    before = source.version()
    add_adapter("a")
    registry.set_loaded(db, "a", True)
    assert source.wait(PATIENCE_S)
    assert source.version() > before
    assert "a" in {row.id for row in source.snapshot().adapters}


def test_lost_connections_are_made_anew(source: DatabaseSource, url: str, endpoint: str) -> None:
    source.wait(0.01)
    source.version()
    _cut(url)
    with pytest.raises(DatabaseAway):
        source.wait(PATIENCE_S)
    assert source.wait(0.01) is False
    assert source.version()[0] == source.snapshot().epoch


def test_a_closed_source_stays_closed(source: DatabaseSource, endpoint: str) -> None:
    source.version()
    source.close()
    for call in (source.version, source.snapshot, lambda: source.wait(0.01)):
        with pytest.raises(DatabaseAway):
            call()


def test_the_watcher_follows_promotions_through_a_loss_of_connections(
    db: Database, url: str, add_adapter: Callable[..., AdapterRow]
) -> None:
    add_adapter("a")
    seen = threading.Event()

    def changed(snapshot: RegistrySnapshot) -> None:
        if snapshot.prod_of("assistant") is not None:
            seen.set()

    watcher = RegistryWatcher(DatabaseSource(url), changed, poll_s=0.2)
    watcher.start()
    _cut(url)
    promotion.promote(db, "a", override_reason="test")
    assert seen.wait(PATIENCE_S)
    target = watcher.snapshot.resolve("assistant")
    assert target is not None
    assert watcher.snapshot.assign(target, "u").variant == "prod"
    watcher.close()
