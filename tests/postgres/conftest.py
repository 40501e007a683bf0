"""One embedded server a session; each test gets a database of its own, copied from a migrated template."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from db import evals, migrate, registry
from db.database import Database
from db.embedded import EmbeddedPostgres
from db.rows import AdapterRow, EvalMetricRow, EvalResultRow, FeedbackRecord, RequestRecord

BASE_DIGEST = "sha256:" + "b" * 64
HASH = "suite-v1"
_numbers = count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedPostgres]:
    folder = Path(tempfile.mkdtemp(prefix="noria-test-"))
    server = EmbeddedPostgres(folder / "postgres", database="template", settings={"fsync": "off"})
    migrate.upgrade(server.start())
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture
def empty_url(server: EmbeddedPostgres) -> Iterator[str]:
    """A database without anything in it."""
    yield from _database(server, "template0")


@pytest.fixture
def url(server: EmbeddedPostgres) -> Iterator[str]:
    """A migrated database."""
    yield from _database(server, "template")


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    with Database(url, min_size=1, max_size=4) as database:
        yield database


def _database(server: EmbeddedPostgres, template: str) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    admin = server.url.replace("/template?", "/postgres?")
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        yield server.url.replace("/template?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def uuid7(at: datetime | None = None) -> str:
    """A UUIDv7 of a moment; ids made later in this process sort later."""
    milliseconds = int((at.timestamp() if at else time.time()) * 1000)
    tail = (next(_numbers) << 44) | int.from_bytes(os.urandom(5))
    value = (milliseconds << 80) | (0x7 << 76) | (((tail >> 62) & 0xFFF) << 64) | (0b10 << 62)
    return str(uuid.UUID(int=value | (tail & ((1 << 62) - 1))))


@pytest.fixture
def new_id() -> Callable[..., str]:
    return uuid7


@pytest.fixture
def make_request() -> Callable[..., RequestRecord]:
    """Build a request record; any field may be given."""

    def make(**given: Any) -> RequestRecord:
        at = given.get("started_at") or datetime.now(UTC)
        values: dict[str, Any] = {
            "id": given.get("id") or uuid7(at),
            "tenant": "default",
            "endpoint": "assistant",
            "requested_model": "assistant",
            "base_model": "tiny",
            "base_digest": BASE_DIGEST,
            "adapter_id": None,
            "adapter_digest": None,
            "assigned_adapter_id": None,
            "variant": "base",
            "bucket": 7,
            "experiment": "none",
            "user_key": "ann",
            "parent_id": None,
            "api": "chat",
            "started_at": at,
            "finished_at": at + timedelta(seconds=1),
            "finish_reason": "stop",
            "error": None,
            "prompt_tokens": 5,
            "cached_tokens": 0,
            "completion_tokens": 7,
            "queue_ms": 0.5,
            "ttft_ms": 20.0,
            "duration_ms": 1000.0,
            "sampling": {"temperature": 0.7},
            "stream": True,
            "source": "traffic",
            "messages": [{"role": "user", "content": f"question {next(_numbers)}"}],
            "completion": "an answer",
        }
        return RequestRecord(**{**values, **given})

    return make


@pytest.fixture
def make_feedback() -> Callable[..., FeedbackRecord]:
    """Build an act of feedback on a request id."""

    def make(request_id: str, kind: str = "thumbs", value: int | None = None, **given: Any) -> FeedbackRecord:
        values: dict[str, Any] = {
            "id": uuid7(),
            "tenant": "default",
            "request_id": request_id,
            "kind": kind,
            "value": value,
            "text": None,
            "actor": "ann",
            "idempotency_key": None,
            "at": datetime.now(UTC),
        }
        return FeedbackRecord(**{**values, **given})

    return make


@pytest.fixture
def endpoint(db: Database) -> str:
    """The endpoint `assistant` on the base model `tiny`."""
    registry.register_base_model(db, "tiny", BASE_DIGEST, "/models/tiny")
    return registry.create_endpoint(db, "assistant", "tiny").name


def digest_of(adapter_id: str) -> str:
    return f"sha256:{adapter_id.encode().hex():0>64}"


@pytest.fixture
def add_adapter(db: Database, endpoint: str) -> Callable[..., AdapterRow]:
    """Register a candidate of the endpoint (or of none, with endpoint=None)."""

    def add(adapter_id: str, **given: Any) -> AdapterRow:
        values: dict[str, Any] = {
            "id": adapter_id,
            "digest": digest_of(adapter_id),
            "base_model": "tiny",
            "endpoint": endpoint,
            "store_uri": f"file:///store/{adapter_id}",
            "config": {"r": 8},
            "size_bytes": 1000,
        }
        return registry.register_adapter(db, **{**values, **given})

    return add


@pytest.fixture
def measure(db: Database) -> Callable[..., int]:
    """Store one figure: measure(subject, value, metric=..., n=...)."""

    def store(subject: str, value: float | None, **given: Any) -> int:
        values: dict[str, Any] = {
            "subject": subject,
            "base_digest": BASE_DIGEST,
            "suite": "quality",
            "suite_hash": HASH,
            "metric": "accuracy",
            "value": value,
            "low": None if value is None else value - 0.05,
            "high": None if value is None else value + 0.05,
            "n": 100,
            "unscored": 0,
        }
        return evals.insert_results(db, [EvalResultRow(**{**values, **given})])

    return store


@pytest.fixture
def demand(db: Database) -> Callable[..., None]:
    """Register the suite `quality` with these rules; by default one metric that is to be accurate."""

    def register(metrics: Sequence[EvalMetricRow] | None = None, suite_hash: str = HASH) -> None:
        wanted = metrics or [EvalMetricRow(suite="quality", metric="accuracy", tolerance=0.02, min_n=50)]
        evals.register_suite(db, "quality", suite_hash, 100, wanted)

    return register


@pytest.fixture
def add_good(
    add_adapter: Callable[..., AdapterRow], demand: Callable[..., None], measure: Callable[..., int]
) -> Callable[[str], AdapterRow]:
    """Register a candidate that passes the gate."""

    def add(adapter_id: str) -> AdapterRow:
        demand()
        measure("base", 0.80)
        row = add_adapter(adapter_id)
        measure(row.digest, 0.85)
        return row

    return add
