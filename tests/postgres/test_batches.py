"""Batches: their states, and the lease that lets one gateway at a time change a batch."""

from dataclasses import replace
from typing import Any

import pytest

from db import batches, files
from db.batches import AnswerFile
from db.database import Database
from db.errors import Conflict, LeaseLost, NotFound
from db.rows import BatchPart, BatchRow, NewBatch

PART = BatchPart(
    name="p1",
    sha256="ab" * 32,
    output_bytes=10,
    error_bytes=5,
    lines=[1, 2, 4],
    completed=2,
    failed=1,
    input_tokens=7,
    cached_tokens=3,
    output_tokens=9,
)
OUTPUT = AnswerFile(id="file-out", filename="b_output.jsonl", bytes=10, sha256="cd" * 32)
ERRORS = AnswerFile(id="file-err", filename="b_error.jsonl", bytes=5, sha256="ef" * 32)


def create(db: Database, batch_id: str = "batch_1", **given: Any) -> BatchRow:
    new = NewBatch(
        id=batch_id,
        tenant="default",
        endpoint="/v1/completions",
        input_file_id="file-in",
        completion_window="24h",
        metadata={"purpose": "a\x00test"},
        output_seconds=3600,
        source="eval",
        user_key="ann",
        conversation=None,
        window_s=86_400.0,
    )
    return batches.create(db, replace(new, **given))


def claimed(db: Database, seconds: float = 60.0) -> BatchRow:
    row = batches.claim(db, seconds)
    assert row is not None
    return row


def test_a_batch_goes_its_way(db: Database) -> None:
    made = create(db)
    assert (made.status, made.total, made.lease_no) == ("validating", 0, 0)
    assert made.metadata == {"purpose": "a�test"}
    assert (made.expires_at - made.created_at).total_seconds() == 86_400
    lease = claimed(db).lease_no
    batches.accept(db, made.id, lease, total=4, model="m")
    batches.add_part(db, made.id, lease, PART)
    batches.finalize(db, made.id, lease)
    assert batches.get(db, "default", made.id).status == "finalizing"
    batches.finish(db, made.id, lease, "completed", output=OUTPUT, errors=ERRORS)
    row = batches.get(db, "default", made.id)
    assert (row.status, row.total, row.completed, row.failed, row.model) == ("completed", 4, 2, 1, "m")
    assert (row.input_tokens, row.cached_tokens, row.output_tokens) == (7, 3, 9)
    assert (row.output_file_id, row.error_file_id) == ("file-out", "file-err")
    assert None not in (row.in_progress_at, row.finalizing_at, row.completed_at)
    assert (row.cancelled_at, row.expired_at, row.failed_at) == (None, None, None)
    shown = files.get(db, "default", "file-out")
    assert (shown.purpose, shown.bytes, shown.filename) == ("batch_output", 10, "b_output.jsonl")
    assert shown.expires_at is not None
    assert (shown.expires_at - shown.created_at).total_seconds() == 3600
    assert batches.claim(db, 60) is None


def test_one_gateway_at_a_time_has_a_batch_and_the_oldest_comes_first(db: Database) -> None:
    create(db, "batch_1")
    create(db, "batch_2")
    assert claimed(db).id == "batch_1"
    assert claimed(db).id == "batch_2"
    assert batches.claim(db, 60) is None


def test_a_lease_that_ran_out_is_taken_and_the_old_holder_is_refused(db: Database) -> None:
    create(db)
    old = claimed(db, seconds=0.0)
    new = claimed(db)
    assert new.lease_no == old.lease_no + 1
    calls = (
        lambda: batches.renew(db, old.id, old.lease_no, 60),
        lambda: batches.accept(db, old.id, old.lease_no, total=1, model=None),
        lambda: batches.reject(db, old.id, old.lease_no, total=1, errors=[]),
        lambda: batches.add_part(db, old.id, old.lease_no, PART),
        lambda: batches.finalize(db, old.id, old.lease_no),
        lambda: batches.finish(db, old.id, old.lease_no, "completed", output=OUTPUT, errors=None),
    )
    for call in calls:
        with pytest.raises(LeaseLost, match=r"lease 1 of batch 'batch_1'"):
            call()
    assert batches.parts(db, old.id) == []
    assert batches.get(db, "default", old.id).status == "validating"
    with pytest.raises(NotFound):
        files.get(db, "default", OUTPUT.id)


def test_a_lease_holds_while_nobody_has_taken_it(db: Database) -> None:
    create(db)
    lease = claimed(db, seconds=0.0).lease_no
    batches.accept(db, "batch_1", lease, total=4, model=None)
    assert batches.renew(db, "batch_1", lease, 60).status == "in_progress"
    assert batches.claim(db, 60) is None
    batches.renew(db, "batch_1", lease, 0)
    assert claimed(db).lease_no == lease + 1


def test_a_part_counts_once(db: Database) -> None:
    create(db)
    lease = claimed(db).lease_no
    for _ in range(2):
        batches.add_part(db, "batch_1", lease, PART)
    batches.add_part(db, "batch_1", lease, replace(PART, name="p2", lines=[3], completed=1, failed=0))
    row = batches.get(db, "default", "batch_1")
    assert (row.completed, row.failed, row.output_tokens) == (3, 1, 18)
    assert [(part.name, list(part.lines)) for part in batches.parts(db, "batch_1")] == [
        ("p1", [1, 2, 4]),
        ("p2", [3]),
    ]


def test_an_input_that_is_not_sound_ends_the_batch(db: Database) -> None:
    create(db)
    problems = [{"code": "invalid_json_line", "line": 2, "message": "no", "param": None}]
    batches.reject(db, "batch_1", claimed(db).lease_no, total=3, errors=problems)
    row = batches.get(db, "default", "batch_1")
    assert (row.status, row.total, row.errors) == ("failed", 3, problems)
    assert row.failed_at is not None


def test_a_batch_is_cancelled_once_its_worker_has_ended_it(db: Database) -> None:
    create(db)
    lease = claimed(db).lease_no
    batches.accept(db, "batch_1", lease, total=4, model=None)
    first = batches.cancel(db, "default", "batch_1")
    assert first.status == "cancelling"
    assert batches.cancel(db, "default", "batch_1").cancelling_at == first.cancelling_at
    assert batches.renew(db, "batch_1", lease, 60).status == "cancelling"
    batches.finalize(db, "batch_1", lease)
    for _ in range(2):  # the second time because the first one's answer was lost
        batches.finish(db, "batch_1", lease, "completed", output=OUTPUT, errors=None)
    row = batches.get(db, "default", "batch_1")
    assert (row.status, row.output_file_id, row.error_file_id) == ("cancelled", "file-out", None)
    assert row.cancelled_at is not None
    assert (row.completed_at, row.finalizing_at) == (None, None)
    with pytest.raises(Conflict, match="is cancelled; allowed"):
        batches.cancel(db, "default", "batch_1")


def test_a_batch_is_cancelled_before_anybody_has_begun(db: Database) -> None:
    create(db)
    batches.cancel(db, "default", "batch_1")
    row = claimed(db)
    batches.accept(db, row.id, row.lease_no, total=4, model=None)
    found = batches.get(db, "default", row.id)
    assert (found.status, found.total) == ("cancelling", 4)


def test_another_tenant_has_no_such_batch(db: Database) -> None:
    create(db)
    with pytest.raises(NotFound):
        batches.get(db, "other", "batch_1")
    with pytest.raises(NotFound):
        batches.cancel(db, "other", "batch_1")
    assert batches.page(db, "other", limit=10) == []


def test_pages_are_newest_first(db: Database) -> None:
    for number in range(4):
        create(db, f"batch_{number}")
    newest = [row.id for row in batches.page(db, "default", limit=2)]
    assert newest == ["batch_3", "batch_2"]
    assert [row.id for row in batches.page(db, "default", limit=5, after="batch_2")] == ["batch_1", "batch_0"]


def test_parts_of_what_has_ended_are_left_over_until_forgotten(db: Database) -> None:
    create(db)
    lease = claimed(db).lease_no
    batches.add_part(db, "batch_1", lease, PART)
    assert batches.leftovers(db) == []
    assert batches.unfinished(db) == {"batch_1"}
    batches.finish(db, "batch_1", lease, "expired", output=None, errors=None)
    assert batches.get(db, "default", "batch_1").expired_at is not None
    assert batches.unfinished(db) == set()
    assert batches.leftovers(db) == ["batch_1"]
    batches.forget_parts(db, "batch_1")
    assert batches.leftovers(db) == []
