"""The migrations: replayed on an empty server, over rows, twice, and by two at once."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from db import audit, migrate, partitions, registry, schema
from db.database import Database
from db.errors import DatabaseAway, MigrationError


def test_replayed_migrations_make_the_recorded_schema(empty_url: str) -> None:
    migrate.upgrade(empty_url)
    assert migrate.current(empty_url) == migrate.head()
    assert schema.dump(empty_url) == schema.RECORDED.read_text(), "see db/schema.py"


def test_upgrade_again_changes_nothing(url: str) -> None:
    before = schema.dump(url)
    migrate.upgrade(url)
    assert schema.dump(url) == before


def test_two_processes_may_upgrade_at_once(empty_url: str) -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(migrate.upgrade, [empty_url] * 3))
    assert migrate.current(empty_url) == migrate.head()


def test_upgrade_keeps_the_rows_of_an_earlier_revision(empty_url: str) -> None:
    migrate.upgrade(empty_url, "0004")
    with psycopg.connect(empty_url) as connection:
        connection.execute("INSERT INTO serve.base_model VALUES ('tiny', 'sha256:b', '/m')")
        connection.execute(
            "INSERT INTO serve.endpoint (name, tenant, base_model) VALUES ('e', 'default', 'tiny')"
        )
        connection.execute(
            "INSERT INTO serve.adapter (id, digest, base_model, endpoint, status, traffic_pct, store_uri,"
            " config, bytes) VALUES ('a-1', 'sha256:1', 'tiny', 'e', 'prod', 100, 'file:///a', '{}', 1)"
        )
        connection.execute(
            "INSERT INTO obs.request (tenant, endpoint, requested_model, base_model, base_digest, variant,"
            " user_key, api, started_at, finished_at, finish_reason, prompt_tokens, cached_tokens,"
            " completion_tokens, duration_ms, sampling, stream, source)"
            " SELECT 'default', 'e', 'e', 'tiny', 'sha256:b', 'prod', 'ann', 'chat', now(), now(), 'stop',"
            " 1, 0, 1, 1, '{}', true, 'traffic' FROM generate_series(1, 50)"
        )
        connection.execute(
            "INSERT INTO obs.feedback (tenant, request_id, kind, value, actor)"
            " SELECT tenant, id, 'thumbs', 1, 'ann' FROM obs.request"
        )
        connection.execute("INSERT INTO obs.consent (tenant, action) VALUES ('default', 'granted')")
    migrate.upgrade(empty_url)
    with Database(empty_url) as db, db.transaction() as connection:
        log = connection.execute(
            "SELECT count(*) AS n, sum(fb_explicit) AS up FROM obs.inference_log"
        ).fetchone()
        assert log == {"n": 50, "up": 50}
        assert registry.adapter(db, "a-1").status == "prod"
        assert audit.verify(db) == []
        assert set(partitions.default_rows(db).values()) == {0}


def test_an_unknown_revision_is_refused(url: str) -> None:
    with pytest.raises(MigrationError, match="nosuch"):
        migrate.upgrade(url, "nosuch")
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'of-the-future'")
    with pytest.raises(MigrationError, match="of-the-future"):
        migrate.upgrade(url)


def test_no_server_is_database_away() -> None:
    with pytest.raises(DatabaseAway):
        migrate.current("postgresql://postgres@/noria?host=/nonexistent")


def test_revisions_form_one_line_and_each_has_its_sql() -> None:
    folder = Path(migrate.__file__).parent / "migrations" / "versions"
    revisions = sorted(folder.glob("[0-9]*.py"))
    assert revisions
    for place, revision in enumerate(revisions, start=1):
        assert re.fullmatch(rf"{place:04}_[a-z_]+", revision.stem)
        assert revision.with_suffix(".sql").stat().st_size > 0
