"""serve.response: conversations that are kept, gone on from, forgotten."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from db import responses
from db.database import Database
from db.errors import InvalidValue, NotFound
from db.rows import ResponseRow
from serve.upkeep import Upkeep

NOBODY = "01890000-0000-7000-8000-000000000000"


@pytest.fixture
def keep(db: Database, new_id: Callable[..., str]) -> Callable[..., ResponseRow]:
    """Store an answer; any field may be given."""

    def store(**given: Any) -> ResponseRow:
        at = datetime.now(UTC)
        values: dict[str, Any] = {
            "id": new_id(),
            "tenant": "default",
            "previous_id": None,
            "model": "assistant",
            "status": "completed",
            "input_items": [{"type": "message", "role": "user", "content": "hi"}],
            "output_items": [{"type": "message", "role": "assistant", "content": "hello"}],
            "answer": {"object": "response"},
            "created_at": at,
            "expires_at": at + timedelta(days=30),
        }
        row = ResponseRow(**{**values, **given})
        responses.insert(db, row)
        return row

    return store


def test_what_is_kept_comes_back(db: Database, keep: Callable[..., ResponseRow]) -> None:
    row = keep()
    assert responses.get(db, "default", row.id) == row
    responses.insert(db, row)


def test_characters_that_postgres_lacks_are_replaced(db: Database, keep: Callable[..., ResponseRow]) -> None:
    row = keep(input_items=[{"content": "a\x00b\ud800"}])
    assert responses.get(db, "default", row.id).input_items == [{"content": "a\ufffdb\ufffd"}]


def test_a_chain_is_its_turns_from_the_first_on(db: Database, keep: Callable[..., ResponseRow]) -> None:
    ids: list[str] = []
    for number in range(5):
        ids.append(keep(previous_id=ids[-1] if ids else None, input_items=[{"turn": number}]).id)
    turns = responses.chain(db, "default", ids[3])
    assert [turn.id for turn in turns] == ids[:4]
    assert [turn.input_items for turn in turns] == [[{"turn": number}] for number in range(4)]


def test_two_answers_may_go_on_from_one(db: Database, keep: Callable[..., ResponseRow]) -> None:
    first = keep()
    branches = [keep(previous_id=first.id) for _ in range(2)]
    assert [[turn.id for turn in responses.chain(db, "default", each.id)] for each in branches] == [
        [first.id, each.id] for each in branches
    ]


def test_another_tenants_answer_is_none(db: Database, keep: Callable[..., ResponseRow]) -> None:
    mine = keep(tenant="mine")
    for look in (responses.get, responses.chain):
        with pytest.raises(NotFound):
            look(db, "yours", mine.id)
    assert not responses.delete(db, "yours", mine.id)
    theirs = keep(tenant="yours", previous_id=mine.id)
    with pytest.raises(NotFound, match="went on from"):
        responses.chain(db, "yours", theirs.id)
    assert responses.get(db, "mine", mine.id) == mine


def test_items_of_several_answers_are_read_at_once(db: Database, keep: Callable[..., ResponseRow]) -> None:
    first, second = keep(input_items=[{"id": "a"}], output_items=[{"id": "b"}]), keep(tenant="yours")
    assert responses.items(db, "default", [first.id, second.id]) == [{"id": "a"}, {"id": "b"}]
    assert responses.items(db, "default", [NOBODY]) == responses.items(db, "default", []) == []


def test_what_is_deleted_breaks_the_chain_in_the_open(db: Database, keep: Callable[..., ResponseRow]) -> None:
    first = keep()
    second = keep(previous_id=first.id)
    assert responses.delete(db, "default", first.id)
    assert not responses.delete(db, "default", first.id)
    assert responses.get(db, "default", second.id) == second
    with pytest.raises(NotFound, match="went on from"):
        responses.chain(db, "default", second.id)
    with pytest.raises(NotFound, match="never kept"):
        responses.chain(db, "default", NOBODY)


def test_a_chain_is_bounded_in_turns_and_bytes(db: Database, keep: Callable[..., ResponseRow]) -> None:
    first = keep(input_items=[{"text": "x" * 1000}])
    second = keep(previous_id=first.id)
    assert len(responses.chain(db, "default", second.id, max_turns=2)) == 2
    with pytest.raises(InvalidValue, match="at most 1 turns"):
        responses.chain(db, "default", second.id, max_turns=1)
    with pytest.raises(InvalidValue, match="500 bytes are allowed"):
        responses.chain(db, "default", second.id, max_octets=500)


def test_an_answer_past_its_time_is_none_and_goes_at_the_next_look(
    db: Database, url: str, keep: Callable[..., ResponseRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("db.responses.EXPIRED_AT_ONCE", 2)
    old = [keep(expires_at=datetime.now(UTC) - timedelta(seconds=1)) for _ in range(5)]
    young = keep()
    with pytest.raises(NotFound):
        responses.get(db, "default", old[0].id)
    with pytest.raises(NotFound):
        responses.chain(db, "default", old[0].id)
    assert not responses.delete(db, "default", old[0].id)
    Upkeep(db).look()
    with psycopg.connect(url) as connection:
        left = connection.execute("SELECT id::text FROM serve.response").fetchall()
    assert left == [(young.id,)]


def test_a_status_that_cannot_be_gone_on_from_is_refused(keep: Callable[..., ResponseRow]) -> None:
    with pytest.raises(InvalidValue):
        keep(status="failed")
