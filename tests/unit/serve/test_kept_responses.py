"""Keeping answers: never waited for long, never a reason to fail, and said in the open where it failed."""

import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, Counter

from db.errors import DatabaseAway, InvalidValue, NotFound
from db.rows import ResponseRow, ResponseTurn
from serve.errors import InvalidField, PreviousResponseNotFound, ResponseNotFound
from serve.kept_responses import KeptResponses

ID = "resp_01890000000070008000000000000000"
MESSAGE = {"type": "message", "role": "user", "content": "a"}
ROW = ResponseRow(
    id="01890000-0000-7000-8000-000000000000",
    tenant="t",
    previous_id=None,
    model="m",
    status="completed",
    input_items=[],
    output_items=[],
    answer={},
    created_at=datetime.now(UTC),
    expires_at=datetime.now(UTC),
)


@pytest.fixture
def counter() -> Counter:
    return Counter("not_kept", "Answers.", registry=CollectorRegistry())


@pytest.fixture
async def kept(counter: Counter) -> AsyncIterator[KeptResponses]:
    made = KeptResponses(cast(Any, None), counter)
    yield made
    made.close()


def raising(error: Exception) -> Any:
    def call(*_: Any) -> Any:
        raise error

    return call


async def test_what_the_database_takes_is_kept(
    kept: KeptResponses, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[ResponseRow] = []
    monkeypatch.setattr("db.responses.insert", lambda _, row: rows.append(row))
    assert await kept.keep(ROW)
    assert rows == [ROW]
    assert counter._value.get() == 0


async def test_a_database_that_is_away_is_left_alone_for_a_while(
    kept: KeptResponses, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("db.responses.insert", raising(DatabaseAway("gone")))
    assert not await kept.keep(ROW)
    monkeypatch.setattr("db.responses.insert", raising(AssertionError("asked again")))
    assert not await kept.keep(ROW)
    assert counter._value.get() == 2
    monkeypatch.setattr("serve.kept_responses.monotonic", lambda: float("inf"))
    monkeypatch.setattr("db.responses.insert", lambda *_: None)
    assert await kept.keep(ROW)


async def test_a_row_that_is_refused_hurts_no_other(
    kept: KeptResponses, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("db.responses.insert", raising(InvalidValue("too large")))
    assert not await kept.keep(ROW)
    monkeypatch.setattr("db.responses.insert", lambda *_: None)
    assert await kept.keep(ROW)
    assert counter._value.get() == 1


async def test_a_slow_database_is_not_waited_for(
    kept: KeptResponses, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    monkeypatch.setattr("serve.kept_responses.KEEP_S", 0.01)
    monkeypatch.setattr("db.responses.insert", lambda *_: answered.wait())
    assert not await kept.keep(ROW)
    answered.set()
    assert counter._value.get() == 1


async def test_history_is_all_items_of_all_turns(
    kept: KeptResponses, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [
        ResponseTurn(
            id=str(number), previous_id=None, input_items=[MESSAGE], output_items=[MESSAGE], turns=1, octets=1
        )
        for number in range(2)
    ]
    asked: list[Any] = []
    monkeypatch.setattr("db.responses.chain", lambda *given: asked.append(given[1:]) or turns)
    assert [item.type for item in await kept.history("t", ID)] == ["message"] * 4
    assert asked == [("t", ROW.id)]


async def test_what_is_not_there_is_told_by_its_id(
    kept: KeptResponses, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("get", "chain"):
        monkeypatch.setattr(f"db.responses.{name}", raising(NotFound("gone")))
    monkeypatch.setattr("db.responses.delete", lambda *_: False)
    for each in (ID, "resp_7", "msg_1", ""):
        with pytest.raises(PreviousResponseNotFound, match="not found") as caught:
            await kept.history("t", each)
        assert caught.value.param == "previous_response_id"
        for look in (kept.get, kept.delete):
            with pytest.raises(ResponseNotFound):
                await look("t", each)
    monkeypatch.setattr("db.responses.chain", raising(InvalidValue("600 turns")))
    with pytest.raises(InvalidField, match="600 turns"):
        await kept.history("t", ID)
