"""Training runs, and the way from an answer to what taught it and back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from db import consent, datasets, feedback, provenance, registry, requests, runs
from db.database import Database
from db.errors import Conflict, InvalidValue, NotFound
from db.rows import AdapterRow, FeedbackRecord, FreezeParams, RequestRecord, RunRow

Make = Callable[..., RequestRecord]


@pytest.fixture
def taught(
    db: Database, endpoint: str, make_request: Make, make_feedback: Callable[..., FeedbackRecord]
) -> list[RequestRecord]:
    """Three rated requests that a snapshot holds."""
    records = [make_request() for _ in range(3)]
    requests.insert_batch(db, records)
    feedback.insert_batch(db, [make_feedback(record.id, value=1) for record in records])
    consent.grant(db, "default")
    datasets.freeze_kto(db, FreezeParams(endpoint=endpoint))
    return records


@pytest.fixture
def run(db: Database, taught: list[RequestRecord]) -> RunRow:
    snapshot = datasets.latest(db, "assistant")
    assert snapshot is not None
    return runs.start_run(
        db, endpoint="assistant", adapter_id="v1", method="kto", snapshot_id=snapshot.id, base_model="tiny",
        base_digest="sha256:b", params={"lr": 1e-5}, versions={"trl": "1.16.0"},
    )  # fmt: skip


def test_a_run_from_start_to_finish(db: Database, run: RunRow) -> None:
    assert (run.status, run.step, run.total_steps, run.params) == ("running", 0, None, {"lr": 1e-5})
    runs.progress(db, run.id, 1, {"loss": 0.5}, total_steps=2)
    runs.progress(db, run.id, 2, {"loss": float("nan")})
    runs.progress(db, run.id, 2, {"loss": 0.25})
    done = runs.finish_run(db, run.id, adapter_digest="sha256:d", figures={"n": 3})
    assert (done.status, done.step, done.total_steps, done.adapter_digest) == ("finished", 2, 2, "sha256:d")
    assert done.finished_at is not None
    assert done.heartbeat_at > run.heartbeat_at
    assert runs.curve(db, run.id) == [(1, {"loss": 0.5}), (2, {"loss": 0.25})]
    assert runs.get(db, run.id) == done


def test_a_closed_run_stays_closed(db: Database, run: RunRow) -> None:
    failed = runs.fail_run(db, run.id, "out of memory\x00")
    assert (failed.status, failed.error) == ("failed", "out of memory\ufffd")
    with pytest.raises(Conflict, match="not running"):
        runs.progress(db, run.id, 5, {})
    with pytest.raises(Conflict, match="not running"):
        runs.finish_run(db, run.id, adapter_digest="sha256:d", figures={})
    with pytest.raises(Conflict, match="not running"):
        runs.fail_run(db, run.id, "again")
    assert runs.get(db, run.id) == failed


def test_a_run_needs_its_snapshot(db: Database, endpoint: str) -> None:
    with pytest.raises(NotFound):
        runs.start_run(
            db, endpoint=endpoint, adapter_id="v1", method="kto",
            snapshot_id="00000000-0000-0000-0000-000000000000", base_model="tiny", base_digest="b",
            params={}, versions={},
        )  # fmt: skip
    with pytest.raises(InvalidValue):
        runs.get(db, "no uuid")
    with pytest.raises(NotFound):
        runs.get(db, "00000000-0000-0000-0000-000000000000")


def test_from_an_answer_to_its_training_rows_and_back(
    db: Database,
    run: RunRow,
    taught: list[RequestRecord],
    add_adapter: Callable[..., AdapterRow],
    make_request: Make,
) -> None:
    assert provenance.taught_by(db, taught[0].id) == []
    adapter = add_adapter("v1", run_id=run.id)
    runs.finish_run(db, run.id, adapter_digest=adapter.digest, figures={})
    answered = make_request(adapter_id="v1", adapter_digest=adapter.digest, assigned_adapter_id="v1")
    plain = make_request()
    requests.insert_batch(db, [answered, plain])
    rows = provenance.of_request(db, answered.id)
    assert [row.ordinal for row in rows] == [0, 1, 2]
    assert {row.source_request_id for row in rows} == {record.id for record in taught}
    snapshot = datasets.show(db, run.snapshot_id)
    assert {(row.run_id, row.snapshot_id, row.set_hash) for row in rows} == {
        (run.id, snapshot.id, snapshot.set_hash)
    }
    assert [(row.run_id, row.adapter_id) for row in provenance.of_request(db, plain.id)] == [(None, None)]
    back = provenance.taught_by(db, taught[1].id)
    assert [(row.adapter_id, row.run_id, row.status) for row in back] == [("v1", run.id, "candidate")]
    assert provenance.taught_by(db, answered.id) == []
    assert registry.adapter(db, "v1").run_id == run.id
