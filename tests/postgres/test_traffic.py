"""Requests and feedback: idempotent, in any order, in the right week."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from db import feedback, partitions, requests
from db.canonical import prompt_hash
from db.database import Database
from db.errors import Conflict, InvalidValue
from db.rows import FeedbackRecord, RequestRecord

MakeRequest = Callable[..., RequestRecord]
MakeFeedback = Callable[..., FeedbackRecord]
NewId = Callable[..., str]


def test_a_replayed_batch_adds_nothing(db: Database, make_request: MakeRequest) -> None:
    batch = [make_request() for _ in range(50)]
    assert requests.insert_batch(db, batch[:30]) == 30
    assert requests.insert_batch(db, batch) == 20
    assert requests.insert_batch(db, batch) == 0
    assert requests.insert_batch(db, []) == 0


def test_two_spools_with_the_same_records_do_not_deadlock(db: Database, make_request: MakeRequest) -> None:
    batch = [make_request() for _ in range(300)]
    with ThreadPoolExecutor(2) as pool:
        counts = pool.map(lambda records: requests.insert_batch(db, records), [batch, batch[::-1]])
    assert sum(counts) == 300


def test_a_record_comes_back_as_the_inference_log_shows_it(
    db: Database, make_request: MakeRequest, new_id: NewId
) -> None:
    record = make_request(
        endpoint=None, variant="direct", bucket=None, experiment=None, parent_id=new_id(), ttft_ms=None
    )
    requests.insert_batch(db, [record])
    row = requests.get(db, record.id)
    assert row is not None
    for name in (
        "tenant",
        "variant",
        "bucket",
        "user_key",
        "parent_id",
        "messages",
        "completion",
        "sampling",
    ):
        assert row[name] == getattr(record, name), name
    assert row["prompt_hash"] == prompt_hash(record.messages)
    assert (row["fb_explicit"], row["fb_regen"], row["fb_edited"], row["pii_flags"]) == (
        None,
        False,
        None,
        [],
    )
    assert requests.get(db, new_id()) is None


def test_text_that_postgres_can_not_hold_does_not_poison_the_batch(
    db: Database, make_request: MakeRequest
) -> None:
    record = make_request(
        completion="a\x00b\ud83dc \N{SLIGHTLY SMILING FACE}", messages=[{"role": "user", "content": "\x00"}]
    )
    requests.insert_batch(db, [record])
    row = requests.get(db, record.id)
    assert row is not None
    assert row["completion"] == "a\ufffdb\ufffdc \N{SLIGHTLY SMILING FACE}"
    assert row["messages"][0]["content"] == "\ufffd"


def test_a_record_that_the_tables_refuse_is_named(db: Database, make_request: MakeRequest) -> None:
    with pytest.raises(InvalidValue, match="bucket"):
        requests.insert_batch(db, [make_request(), make_request(bucket=10_000)])


def test_feedback_may_come_first(
    db: Database, make_request: MakeRequest, make_feedback: MakeFeedback
) -> None:
    record = make_request()
    act = make_feedback(record.id, value=1)
    assert feedback.insert_batch(db, [act]) == 1
    assert feedback.orphans(db, grace_s=60) == []
    assert [orphan.id for orphan in feedback.orphans(db, grace_s=0)] == [act.id]
    requests.insert_batch(db, [record])
    assert feedback.orphans(db, grace_s=0) == []
    row = requests.get(db, record.id)
    assert row is not None
    assert row["fb_explicit"] == 1
    assert len(feedback.history(db, record.id)) == 1


def test_the_latest_thumb_wins_and_a_retry_adds_nothing(
    db: Database, make_request: MakeRequest, make_feedback: MakeFeedback
) -> None:
    record = make_request()
    requests.insert_batch(db, [record])
    now = datetime.now(UTC)
    up = make_feedback(record.id, value=1, idempotency_key="first", at=now)
    down = make_feedback(record.id, value=-1, idempotency_key="second", at=now + timedelta(seconds=1))
    retry = make_feedback(record.id, value=1, idempotency_key="first", at=now + timedelta(seconds=2))
    assert [feedback.insert_batch(db, [act]) for act in (up, down, retry, down)] == [1, 1, 0, 0]
    assert feedback.insert_batch(db, [retry, retry]) == 0
    assert [act.value for act in feedback.current(db, record.id)] == [-1]
    assert [act.value for act in feedback.history(db, record.id)] == [1, -1]
    row = requests.get(db, record.id)
    assert row is not None
    assert row["fb_explicit"] == -1


def test_a_key_is_the_clients_own_two_users_may_choose_the_same(
    db: Database, make_request: MakeRequest, make_feedback: MakeFeedback
) -> None:
    first, second = make_request(), make_request()
    requests.insert_batch(db, [first, second])
    acts = [
        make_feedback(first.id, value=1, actor="ana", idempotency_key="click-1"),
        make_feedback(first.id, value=1, actor="ben", idempotency_key="click-1"),
        make_feedback(second.id, value=1, actor="ana", idempotency_key="click-1"),
    ]
    assert feedback.insert_batch(db, acts) == 3


def test_acts_of_the_same_moment_are_told_apart_by_id(
    db: Database, make_request: MakeRequest, make_feedback: MakeFeedback
) -> None:
    record = make_request()
    requests.insert_batch(db, [record])
    at = datetime.now(UTC)
    acts = [make_feedback(record.id, value=value, at=at) for value in (1, -1)]
    feedback.insert_batch(db, acts[::-1])
    assert [act.id for act in feedback.current(db, record.id)] == [max(act.id for act in acts)]


def test_each_kind_has_its_own_column(
    db: Database, make_request: MakeRequest, make_feedback: MakeFeedback
) -> None:
    record = make_request()
    child = make_request(parent_id=record.id)
    requests.insert_batch(db, [record, child])
    feedback.insert_batch(
        db,
        [
            make_feedback(record.id, "edit", text="better"),
            make_feedback(record.id, "comment", text="meh"),
            make_feedback(child.id, "regenerate"),
        ],
    )
    row, second = requests.get(db, record.id), requests.get(db, child.id)
    assert row is not None
    assert second is not None
    assert (row["fb_edited"], row["fb_comment"], row["fb_regen"]) == ("better", "meh", True)
    assert (second["fb_regen"], second["parent_id"]) == (True, record.id)


def test_feedback_of_another_tenant_does_not_count(
    db: Database, make_request: MakeRequest, make_feedback: MakeFeedback
) -> None:
    record = make_request()
    requests.insert_batch(db, [record])
    feedback.insert_batch(db, [make_feedback(record.id, value=-1, tenant="elsewhere")])
    row = requests.get(db, record.id)
    assert row is not None
    assert row["fb_explicit"] is None
    assert len(feedback.orphans(db, grace_s=0)) == 1


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [("thumbs", None, None), ("thumbs", 2, None), ("thumbs", 0, None), ("regenerate", 1, None),
     ("edit", None, None), ("edit", None, ""), ("comment", 1, "x"), ("stars", 5, None)],
)  # fmt: skip
def test_values_must_fit_their_kind(
    db: Database, new_id: NewId, make_feedback: MakeFeedback, kind: str, value: int | None, text: str | None
) -> None:
    with pytest.raises(InvalidValue):
        feedback.insert_batch(db, [make_feedback(new_id(), kind, value, text=text)])


def test_feedback_is_append_only(db: Database, new_id: NewId, make_feedback: MakeFeedback) -> None:
    feedback.insert_batch(db, [make_feedback(new_id(), value=1)])
    for statement in (b"UPDATE obs.feedback SET value = -1", b"DELETE FROM obs.feedback"):
        with pytest.raises(InvalidValue, match="append-only"), db.transaction() as connection:
            connection.execute(statement)


def names_by_parent(db: Database) -> dict[str, list[str]]:
    with db.transaction() as connection:
        rows = connection.execute(b"SELECT parent, name FROM obs.partition ORDER BY name").fetchall()
    return {row["parent"]: [r["name"] for r in rows if r["parent"] == row["parent"]] for row in rows}


def test_weeks_are_made_ahead_and_rows_land_in_theirs(db: Database, make_request: MakeRequest) -> None:
    assert partitions.ensure(db) == []
    weeks = names_by_parent(db)
    assert {parent: len(names) for parent, names in weeks.items()} == {
        "content": 7, "embedding": 7, "request": 7,
    }  # fmt: skip
    now = datetime.now(UTC)
    requests.insert_batch(db, [make_request(), make_request(started_at=now + timedelta(weeks=2))])
    assert set(partitions.default_rows(db).values()) == {0}
    with db.transaction() as connection:
        homes = connection.execute(
            b"SELECT tableoid::regclass::text AS home FROM obs.request ORDER BY 1"
        ).fetchall()
    expected = [f"obs.request_{at:%Gw%V}" for at in (now, now + timedelta(weeks=2))]
    assert [row["home"] for row in homes] == expected
    assert len(partitions.ensure(db, weeks_ahead=6)) == 6


def test_a_missing_week_lands_in_default_raises_the_alarm_and_is_healed(
    db: Database, make_request: MakeRequest
) -> None:
    this_week = f"{datetime.now(UTC):%Gw%V}"
    with psycopg.connect(db.url) as connection:
        connection.execute(f"DROP TABLE obs.request_{this_week}, obs.content_{this_week}")
    record, late = make_request(), make_request(started_at=datetime.now(UTC) - timedelta(weeks=6))
    assert requests.insert_batch(db, [record, late]) == 2
    assert partitions.default_rows(db) == {"request": 2, "content": 2, "embedding": 0}
    assert requests.insert_batch(db, [record]) == 0
    before = requests.get(db, record.id)
    made = partitions.ensure(db)
    assert f"request_{this_week}" in made
    assert len(made) == 4
    assert set(partitions.default_rows(db).values()) == {0}
    assert requests.get(db, record.id) == before
    assert requests.insert_batch(db, [record, late]) == 0


def test_an_id_without_a_time_stays_in_default(db: Database, make_request: MakeRequest) -> None:
    requests.insert_batch(db, [make_request(id="5f0c2e1a-0000-4000-8000-000000000000")])
    assert partitions.ensure(db) == []
    assert partitions.default_rows(db)["request"] == 1


def test_content_expires_before_its_metadata(db: Database, make_request: MakeRequest) -> None:
    record = make_request()
    requests.insert_batch(db, [record])
    later = datetime.now(UTC) + timedelta(days=120)
    dropped = partitions.drop_expired(db, now=later)
    assert dropped
    assert not [name for name in dropped if name.startswith("request")]
    row = requests.get(db, record.id)
    assert row is not None
    assert (row["messages"], row["completion"], row["user_key"]) == (None, None, "ann")
    assert partitions.drop_expired(db, now=later) == []
    partitions.drop_expired(db, now=later + timedelta(days=400))
    assert requests.get(db, record.id) is None
    with pytest.raises(ValueError, match="exceed"):
        partitions.drop_expired(db, content_days=500)


def test_a_drop_gives_way_to_a_reader(db: Database) -> None:
    with psycopg.connect(db.url) as reader:
        reader.execute("SELECT count(*) FROM obs.content")
        with pytest.raises(Conflict):
            partitions.drop_expired(db, now=datetime.now(UTC) + timedelta(days=120))


def test_an_id_is_looked_up_in_its_own_week_only(db: Database, make_request: MakeRequest) -> None:
    record = make_request()
    requests.insert_batch(db, [record])
    with db.transaction() as connection:
        plan = connection.execute(
            f"EXPLAIN SELECT * FROM obs.inference_log WHERE id = '{record.id}'".encode()
        ).fetchall()
    text = "\n".join(str(row["QUERY PLAN"]) for row in plan)
    this_week = f"{datetime.now(UTC):%Gw%V}"
    assert f"request_{this_week} r" in text
    assert text.count(" on request_") == text.count(f"request_{this_week} r") + text.count(" child")


def test_an_embedding_must_have_a_direction(db: Database, new_id: NewId) -> None:
    insert = b"INSERT INTO obs.embedding (id, model, embedding) VALUES (%s, 'm', %s::halfvec)"
    with db.transaction() as connection:
        connection.execute(insert, (new_id(), "[1,0,2]"))
    for vector in ("[0,0,0]", "[NaN,1,1]", "[70000,1,1]"):
        with pytest.raises(InvalidValue), db.transaction() as connection:
            connection.execute(insert, (new_id(), vector))
