"""The registry: what may be registered, what can not be rewritten, and how routers learn of changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from db import audit, promotion, registry
from db.database import Database
from db.errors import Conflict, DatabaseAway, IllegalTransition, InvalidValue, NotFound
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
    with pytest.raises(NotFound, match="is not present"):
        add_adapter("x", base_model="other")


@pytest.mark.parametrize("name", ["", "x" * 201, "line\nbreak", "unit\x1fseparator"])
def test_names_that_no_client_could_send_are_refused(db: Database, name: str) -> None:
    with pytest.raises(InvalidValue):
        registry.register_base_model(db, name, "sha256:x", "/m")


PUBLISHED = {
    "base_model": "tiny",
    "store_uri": "store:n",
    "config": {"r": 4},
    "size_bytes": 5,
    "actor": "eve",
}


def test_an_ad_hoc_adapter_is_replaced_in_place_and_the_event_holds_both_digests(
    db: Database, add_adapter: Add
) -> None:
    old = add_adapter("scratch", endpoint=None)
    assert registry.publish_adapter(db, "scratch", digest="sha256:new", replace=True, **PUBLISHED)
    new = registry.adapter(db, "scratch")
    assert (new.digest, new.config, new.bytes) == ("sha256:new", {"r": 4}, 5)
    event = registry.events(db, adapter_id="scratch")[0]
    assert (event.kind, event.from_digest, event.to_digest) == ("replaced", old.digest, "sha256:new")
    assert event.actor == "eve"


def test_of_many_that_publish_one_name_one_succeeds(db: Database, endpoint: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(
            pool.map(
                lambda number: registry.publish_adapter(db, "raced", digest=f"sha256:{number}", **PUBLISHED),
                range(8),
            )
        )
    assert sorted(made) == [False] * 7 + [True]
    assert registry.adapter(db, "raced").digest == f"sha256:{made.index(True)}"


def test_an_unloaded_name_is_published_anew_and_a_version_of_an_endpoint_only_as_it_was(
    db: Database, add_adapter: Add
) -> None:
    row = add_adapter("assistant-v1")
    registry.set_loaded(db, "assistant-v1", False)
    with pytest.raises(InvalidValue, match="register a new version"):
        registry.publish_adapter(db, "assistant-v1", digest="sha256:other", **PUBLISHED)
    assert registry.publish_adapter(db, "assistant-v1", digest=row.digest, **PUBLISHED)
    assert registry.adapter(db, "assistant-v1") == row


def test_a_pin_is_recorded_and_ends_with_the_serving(db: Database, add_adapter: Add) -> None:
    add_adapter("assistant-v1")
    epoch = registry.epoch(db)
    assert registry.set_pinned(db, "assistant-v1", True, actor="eve").pinned
    assert registry.set_pinned(db, "assistant-v1", True).pinned
    assert registry.epoch(db) == epoch + 1
    assert not registry.set_loaded(db, "assistant-v1", False).pinned
    kinds = [event.kind for event in registry.events(db, adapter_id="assistant-v1")]
    assert kinds == ["unpinned", "unloaded", "pinned", "registered"]
    assert {event.action for event in audit.events(db)} >= {"adapter.pinned", "adapter.unpinned"}
    with pytest.raises(IllegalTransition, match="not served"):
        registry.set_pinned(db, "assistant-v1", True)


def test_a_pin_outlives_the_name_while_an_endpoint_serves_the_adapter(db: Database, add_adapter: Add) -> None:
    add_adapter("assistant-v1")
    promotion.promote(db, "assistant-v1", override_reason="test")
    registry.set_pinned(db, "assistant-v1", True)
    assert registry.set_loaded(db, "assistant-v1", False).pinned
    promotion.set_status(db, "assistant-v1", "retired")
    assert not registry.adapter(db, "assistant-v1").pinned


def test_a_name_is_published_with_its_pin_in_one_go(db: Database, endpoint: str) -> None:
    assert registry.publish_adapter(db, "held", digest="sha256:h", pinned=True, **PUBLISHED)
    assert registry.adapter(db, "held").pinned
    assert [event.kind for event in registry.events(db, adapter_id="held")] == ["pinned", "registered"]
    assert registry.publish_adapter(db, "held", digest="sha256:i", replace=True, **PUBLISHED)
    assert registry.adapter(db, "held").pinned


def test_pages_hold_every_adapter_once_and_filters_leave_some_out(db: Database, add_adapter: Add) -> None:
    for number in range(5):
        add_adapter(f"assistant-v{number}")
    add_adapter("scratch", endpoint=None)
    registry.set_loaded(db, "assistant-v3", False)
    seen: list[str] = []
    while rows := registry.page(db, limit=2, after=seen[-1] if seen else None):
        seen += [row.id for row in rows]
    assert seen == [*(f"assistant-v{number}" for number in range(5)), "scratch"]
    assert [row.id for row in registry.page(db, limit=9, loaded=False)] == ["assistant-v3"]
    assert [row.id for row in registry.page(db, limit=9, endpoint="assistant", loaded=True)] == [
        f"assistant-v{number}" for number in (0, 1, 2, 4)
    ]
    assert registry.page(db, limit=9, status="prod") == []
    assert registry.page(db, limit=9, base_model="other") == []


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
