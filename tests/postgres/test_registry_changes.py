"""Following the registry by changes gives what reading it whole gives, whatever was missed or restored."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from db import promotion, registry
from db.database import Database
from db.embedded import EmbeddedPostgres
from db.errors import DbError
from db.rows import AdapterRow, RegistryRows
from tests.postgres.conftest import digest_of

ENDPOINTS = ("assistant", "second", "third")


class History:
    """Random changes of a registry, of every kind there is; one that is refused is none."""

    def __init__(self, db: Database, seed: int) -> None:
        self._db, self._random = db, random.Random(seed)

    def step(self) -> None:
        name = f"a{self._random.randrange(12)}"
        digest = digest_of(f"{name}-{self._random.randrange(3)}")
        kinds: tuple[Callable[[], object], ...] = (
            lambda: self._register(name, digest),
            lambda: self._publish(name, digest),
            lambda: registry.set_loaded(self._db, name, self._random.random() < 0.5),
            lambda: registry.set_pinned(self._db, name, self._random.random() < 0.5),
            lambda: promotion.start_canary(self._db, name, self._random.choice((5, 20))),
            lambda: promotion.set_status(self._db, name, "prod", override_reason="a test"),
            lambda: promotion.set_status(self._db, name, "candidate"),
            lambda: promotion.rollback(self._db, self._random.choice(ENDPOINTS)),
            lambda: registry.set_anchor(self._db, self._random.choice(ENDPOINTS), None),
            lambda: registry.register_base_model(self._db, "tiny", digest, "/models/tiny"),
            lambda: registry.create_endpoint(self._db, self._random.choice(ENDPOINTS), "tiny"),
        )
        with suppress(DbError):
            self._random.choice(kinds)()

    def _register(self, name: str, digest: str) -> None:
        endpoint = self._random.choice((*ENDPOINTS, None))
        registry.register_adapter(
            self._db, id=name, digest=digest, base_model="tiny", store_uri="store:", config={"r": 8},
            size_bytes=1, endpoint=endpoint,
        )  # fmt: skip

    def _publish(self, name: str, digest: str) -> None:
        config = {"r": 8, "forced": self._random.random() < 0.5}
        registry.publish_adapter(
            self._db, name, digest=digest, base_model="tiny", store_uri="store:", config=config, size_bytes=2,
            replace=True,
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_are_followed_equal_rows_that_are_read_whole(
    db: Database, endpoint: str, seed: int
) -> None:
    history, miss = History(db, seed), random.Random(seed)
    followed = registry.snapshot(db)
    for _ in range(60):
        history.step()
        if miss.random() < 0.6:  # the rest was not heard of
            followed = registry.snapshot(db, followed)
            assert followed == registry.snapshot(db)
    assert registry.snapshot(db, followed) == registry.snapshot(db)
    assert len(followed.adapters) > 3


def test_every_change_that_a_router_sees_has_a_version_of_its_own(db: Database, endpoint: str) -> None:
    history, seen = History(db, 7), registry.snapshot(db)
    for _ in range(80):
        history.step()
        now = registry.snapshot(db)
        same = _content(now) == _content(seen)
        assert same or (now.epoch, now.mark) != (seen.epoch, seen.mark)
        seen = now


def test_what_did_not_change_is_not_read_again(db: Database, add_adapter: Callable[..., AdapterRow]) -> None:
    for number in range(5):
        add_adapter(f"a{number}")
    before = registry.snapshot(db)
    registry.set_loaded(db, "a3", False)
    after = registry.snapshot(db, before)
    assert [row.id for row in after.adapters] == ["a0", "a1", "a2", "a4"]
    assert all(row is old for row, old in zip(after.adapters[:3], before.adapters[:3], strict=True))
    assert after.endpoints is before.endpoints
    assert registry.snapshot(db, after).adapters is after.adapters


@pytest.mark.parametrize("later", [1, 6, 12])
def test_a_backup_that_was_restored_is_read_whole(
    server: EmbeddedPostgres, db: Database, add_adapter: Callable[..., AdapterRow], later: int
) -> None:
    """The backup is behind, as far as, or ahead of what a router has seen, by other changes."""
    for number in range(3):
        add_adapter(f"a{number}")
    with _restored(server, db) as backup:
        for number in range(6):
            add_adapter(f"lost{number}")
        seen = registry.snapshot(db)
        for number in range(later):
            registry.register_base_model(backup, "tiny", f"sha256:{number:064x}", "/models/tiny")
        now = registry.snapshot(backup)
        assert registry.version(backup) != (seen.epoch, seen.mark)
        assert registry.snapshot(backup, seen) == now
        assert [row.id for row in now.adapters] == ["a0", "a1", "a2"]


def test_an_epoch_that_jumps_is_read_whole(db: Database, add_adapter: Callable[..., AdapterRow]) -> None:
    add_adapter("a")
    seen = registry.snapshot(db)
    with db.transaction() as connection:
        connection.execute(b"UPDATE serve.registry_epoch SET epoch = epoch + 1000")
    jumped = registry.snapshot(db, seen)
    assert jumped == registry.snapshot(db)
    add_adapter("b")
    assert registry.snapshot(db, jumped) == registry.snapshot(db)


def test_changes_that_are_no_longer_known_are_no_loss(
    db: Database, add_adapter: Callable[..., AdapterRow]
) -> None:
    add_adapter("a")
    seen = registry.snapshot(db)
    add_adapter("b")
    with db.transaction() as connection:
        connection.execute(b"DELETE FROM serve.registry_change WHERE epoch <= %s", (seen.epoch,))
    assert registry.snapshot(db, seen) == registry.snapshot(db)


def _content(rows: RegistryRows) -> tuple[object, ...]:
    return rows.base_models, rows.endpoints, rows.adapters


@contextmanager
def _restored(server: EmbeddedPostgres, db: Database) -> Iterator[Database]:
    """A copy of the database as it is now."""
    admin = server.url.replace("/template?", "/postgres?")
    name = urlsplit(db.url).path.removeprefix("/")
    cut = b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(name)))
        connection.execute(cut, (name,))
        copy = sql.Identifier(f"{name}_backup")
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(copy, sql.Identifier(name)))
        connection.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(sql.Identifier(name)))
        with Database(db.url.replace(f"/{name}?", f"/{name}_backup?"), min_size=1, max_size=1) as backup:
            yield backup
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(copy))
