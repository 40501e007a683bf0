"""The registry: what may be registered, what can not be rewritten, and how routers learn of changes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest

from db import audit, promotion, registry
from db.database import Database
from db.errors import Conflict, DatabaseAway, InvalidValue, NotFound
from db.notify import Listener
from db.rows import AdapterRow

Add = Callable[..., AdapterRow]


def test_a_snapshot_holds_what_routers_need(db: Database, add_adapter: Add) -> None:
    add_adapter("assistant-v1")
    add_adapter("scratch", endpoint=None)
    add_adapter("asleep")
    registry.set_loaded(db, "asleep", False)
    rows = registry.snapshot(db)
    assert rows.epoch == registry.epoch(db)
    assert [base.name for base in rows.base_models] == ["tiny"]
    assert [(place.name, place.experiment) for place in rows.endpoints] == [("assistant", "none")]
    assert [row.id for row in rows.adapters] == ["assistant-v1", "scratch"]
    row = rows.adapters[0]
    assert (row.status, row.traffic_pct, row.canary_start, row.config) == ("candidate", 0.0, None, {"r": 8})


def test_the_same_registration_again_changes_nothing(db: Database, add_adapter: Add) -> None:
    first = add_adapter("assistant-v1")
    epoch = registry.epoch(db)
    assert add_adapter("assistant-v1") == first
    registry.register_base_model(db, "tiny", first.digest, "/models/tiny")
    assert registry.epoch(db) == epoch + 1  # another digest of the base is a change
    assert registry.create_endpoint(db, "assistant", "tiny").name == "assistant"
    assert len(registry.events(db, adapter_id="assistant-v1")) == 1


def test_a_version_is_never_registered_anew(add_adapter: Add) -> None:
    add_adapter("assistant-v1")
    with pytest.raises(Conflict, match="choose a new id"):
        add_adapter("assistant-v1", digest="sha256:other")


@pytest.mark.parametrize("name", ["assistant", "tiny"])
def test_an_adapter_can_not_take_the_name_of_something_else(add_adapter: Add, name: str) -> None:
    with pytest.raises(Conflict, match="already belongs"):
        add_adapter(name, endpoint=None)


def test_an_endpoint_can_not_take_the_name_of_an_adapter(db: Database, add_adapter: Add) -> None:
    add_adapter("assistant-v1")
    with pytest.raises(Conflict, match="already belongs"):
        registry.create_endpoint(db, "assistant-v1", "tiny")


def test_an_endpoint_keeps_its_base_model(db: Database, endpoint: str) -> None:
    registry.register_base_model(db, "other", "sha256:o", "/models/other")
    with pytest.raises(Conflict, match="'tiny'"):
        registry.create_endpoint(db, endpoint, "other")


def test_unknown_things_are_named(db: Database, add_adapter: Add) -> None:
    with pytest.raises(NotFound, match="'nosuch'"):
        registry.adapter(db, "nosuch")
    with pytest.raises(NotFound, match="'nosuch'"):
        registry.set_loaded(db, "nosuch", True)
    with pytest.raises(NotFound):
        add_adapter("x", endpoint="nosuch")
    with pytest.raises(NotFound):
        registry.set_anchor(db, "assistant", "nosuch")


def test_an_adapter_must_be_of_its_endpoints_base_model(db: Database, add_adapter: Add) -> None:
    registry.register_base_model(db, "other", "sha256:o", "/models/other")
    with pytest.raises(NotFound, match="foreign key"):
        add_adapter("x", base_model="other")


@pytest.mark.parametrize("name", ["", "x" * 201, "line\nbreak", "unit\x1fseparator"])
def test_names_that_no_client_could_send_are_refused(db: Database, name: str) -> None:
    with pytest.raises(InvalidValue):
        registry.register_base_model(db, name, "sha256:x", "/m")


def test_an_ad_hoc_adapter_is_replaced_in_place_and_the_event_holds_both_digests(
    db: Database, add_adapter: Add
) -> None:
    old = add_adapter("scratch", endpoint=None)
    new = registry.replace_adapter(
        db, "scratch", digest="sha256:new", store_uri="file:///n", config={"r": 4}, size_bytes=5, actor="eve"
    )
    assert (new.digest, new.config, new.bytes) == ("sha256:new", {"r": 4}, 5)
    event = registry.events(db, adapter_id="scratch")[0]
    assert (event.kind, event.from_digest, event.to_digest) == ("replaced", old.digest, "sha256:new")
    assert event.actor == "eve"


@pytest.mark.parametrize(
    "change", ["digest = 'sha256:x'", "config = '{}'", "store_uri = 'x'", "endpoint = NULL", "id = 'x'"]
)
def test_an_endpoints_adapter_is_never_rewritten(db: Database, add_adapter: Add, change: str) -> None:
    add_adapter("assistant-v1")
    with pytest.raises(InvalidValue, match="register a new version"), db.transaction() as connection:
        connection.execute(f"UPDATE serve.adapter SET {change}".encode())


def test_loading_and_unloading_leave_events(db: Database, add_adapter: Add) -> None:
    add_adapter("scratch", endpoint=None)
    assert registry.set_loaded(db, "scratch", False).loaded is False
    assert registry.set_loaded(db, "scratch", False).loaded is False
    assert registry.set_loaded(db, "scratch", True).loaded is True
    kinds = [event.kind for event in registry.events(db, adapter_id="scratch")]
    assert kinds == ["loaded", "unloaded", "registered"]


def test_events_and_audit_are_append_only(db: Database, add_adapter: Add) -> None:
    add_adapter("assistant-v1")
    for statement in (
        "UPDATE serve.adapter_event SET actor = 'x'",
        "DELETE FROM serve.adapter_event",
        "UPDATE audit.event SET actor = 'x'",
        "DELETE FROM audit.event",
        "TRUNCATE audit.event",
    ):
        with pytest.raises(InvalidValue, match="append-only"), db.transaction() as connection:
            connection.execute(statement.encode())


def test_a_change_wakes_a_listener_and_moves_the_epoch(db: Database, add_adapter: Add) -> None:
    before = registry.epoch(db)
    with Listener(db.url) as listener:
        assert not listener.wait(0.05)
        add_adapter("assistant-v1")
        assert listener.wait(10)
        while listener.wait(0.05):
            pass
        with pytest.raises(InvalidValue), db.transaction() as connection:
            connection.execute(b"UPDATE serve.adapter SET loaded = false; SELECT 1 / 0")
        assert not listener.wait(0.2)
    assert registry.epoch(db) > before


def test_a_lost_listener_says_so(db: Database, add_adapter: Add) -> None:
    lost = threading.Event()

    def listen() -> None:
        with Listener(db.url) as listener:
            ready.set()
            with pytest.raises(DatabaseAway):
                listener.wait(60)
        lost.set()

    ready = threading.Event()
    thread = threading.Thread(target=listen)
    thread.start()
    assert ready.wait(10)
    with psycopg.connect(db.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'noria-listen'"
            " AND datname = current_database()"
        )
    assert lost.wait(10)
    thread.join()


def test_the_audit_chain_holds_and_tampering_is_found(db: Database, add_adapter: Add) -> None:
    for number in range(4):
        add_adapter(f"assistant-v{number}")
    promotion.set_status(db, "assistant-v3", "rejected", actor="eve")
    assert audit.verify(db) == []
    newest = audit.events(db, limit=1)[0]
    assert (newest.action, newest.subject, newest.actor) == ("adapter.status", "assistant-v3", "eve")
    with psycopg.connect(db.url) as connection:
        connection.execute("ALTER TABLE audit.event DISABLE TRIGGER append_only")
        connection.execute("UPDATE audit.event SET actor = 'nobody' WHERE seq = 2")
        connection.execute("DELETE FROM audit.event WHERE seq = 4")
    problems = [(problem.seq, problem.problem) for problem in audit.verify(db)]
    assert problems == [
        (2, "the content is not what was written"),
        (5, "an event before this one is missing"),
        (5, "the chain to the event before is broken"),
    ]
