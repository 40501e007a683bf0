"""Frozen KTO sets: where examples come from, what each filter drops, and that a set can be made again."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from db import audit, consent, datasets, feedback, requests
from db.canonical import canonical_json, prompt_hash, sha256_hex
from db.database import Database
from db.errors import EmptySnapshot, InvalidValue, NotFound
from db.rows import FeedbackRecord, FreezeParams, RequestRecord

MakeFeedback = Callable[..., FeedbackRecord]
Answer = Callable[..., RequestRecord]

PARAMS = FreezeParams(endpoint="assistant")


@pytest.fixture(autouse=True)
def granted(db: Database, endpoint: str) -> None:
    consent.grant(db, "default")


@pytest.fixture
def answer(db: Database, make_request: Callable[..., RequestRecord], make_feedback: MakeFeedback) -> Answer:
    """Store a request, with a thumb, an edit or a regeneration when given."""

    def store(
        thumb: int | None = None, *, edit: str | None = None, again: bool = False, **given: Any
    ) -> RequestRecord:
        record = make_request(**given)
        requests.insert_batch(db, [record])
        acts = []
        if thumb is not None:
            acts.append(make_feedback(record.id, value=thumb))
        if edit is not None:
            acts.append(make_feedback(record.id, "edit", text=edit))
        if again:
            acts.append(make_feedback(record.id, "regenerate"))
        feedback.insert_batch(db, acts)
        return record

    return store


def frozen(db: Database, params: FreezeParams = PARAMS) -> set[tuple[str, str, bool]]:
    """(origin, completion, label) of a new snapshot."""
    snapshot = datasets.freeze_kto(db, params)
    items = datasets.rows(db, snapshot.id)
    assert [item.ordinal for item in items] == list(range(snapshot.rows))
    return {(item.origin, item.payload["completion"][0]["content"], item.label) for item in items}


def test_thumbs_become_labels(db: Database, answer: Answer) -> None:
    answer(1, completion="good")
    answer(-1, completion="bad")
    answer(completion="unrated")
    assert frozen(db) == {("thumbs", "good", True), ("thumbs", "bad", False)}


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {}}}


@pytest.mark.parametrize(
    "given",
    [
        {"sampling": {"tools": [{"type": "function", "function": {"name": "f"}}]}},
        {"sampling": {"continue_final_message": True}},
        {"sampling": {"documents": [{"title": "a"}]}},
        {"messages": [{"role": "assistant", "content": "", "tool_calls": [CALL]}]},
        {"messages": [{"role": "tool", "content": "sunny", "tool_call_id": "c"}]},
    ],
)
def test_a_prompt_with_more_than_texts_is_not_offered(
    db: Database, answer: Answer, given: dict[str, Any]
) -> None:
    answer(1, completion="good")
    answer(1, completion="with more", **given)
    assert frozen(db) == {("thumbs", "good", True)}


def test_a_payload_is_the_prompt_the_completion_how_it_ended_and_the_label(
    db: Database, answer: Answer
) -> None:
    record = answer(1)
    item = datasets.rows(db, datasets.freeze_kto(db, PARAMS).id)[0]
    assert item.payload == {
        "prompt": record.messages,
        "completion": [{"role": "assistant", "content": record.completion}],
        "finish_reason": "stop",
        "label": True,
    }
    assert item.payload_hash == sha256_hex(canonical_json(item.payload))
    assert item.request_id == record.id


def test_an_edit_gives_the_wanted_text_and_the_unwanted_answer(db: Database, answer: Answer) -> None:
    answer(edit="as I want it", completion="as it was")
    answer(edit="the same", completion="the same")
    assert frozen(db) == {("edit", "as I want it", True), ("corrected", "as it was", False)}


def test_the_end_of_an_answer_is_frozen_with_it(db: Database, answer: Answer) -> None:
    answer(edit="as I want it", completion="as it was, c", finish_reason="length")
    answer(-1, completion="whole and disliked")
    items = datasets.rows(db, datasets.freeze_kto(db, PARAMS).id)
    assert {(item.origin, item.payload["finish_reason"]) for item in items} == {
        ("edit", "stop"), ("corrected", "length"), ("thumbs", "stop"),
    }  # fmt: skip


def test_a_cut_answer_may_be_disliked_but_not_liked(db: Database, answer: Answer) -> None:
    answer(1, completion="cut but liked", finish_reason="length")
    answer(-1, completion="cut and disliked", finish_reason="length")
    answer(1, completion="broken", finish_reason="error")
    assert frozen(db) == {("thumbs", "cut and disliked", False)}


def test_a_chain_of_regenerations(db: Database, answer: Answer) -> None:
    prompt = [{"role": "user", "content": "same question"}]
    first = answer(messages=prompt, completion="A")
    second = answer(messages=prompt, completion="B", parent_id=first.id)
    last = answer(messages=prompt, completion="C", parent_id=second.id)
    assert frozen(db) == {("regenerated", "A", False), ("regenerated", "B", False)}
    talk = [*prompt, {"role": "assistant", "content": "C"}, {"role": "user", "content": "and then?"}]
    answer(messages=talk)
    assert frozen(db) == {("regenerated", "A", False), ("regenerated", "B", False), ("accepted", "C", True)}
    assert last.parent_id == second.id


def test_a_regeneration_of_a_cut_or_failed_answer_says_nothing(db: Database, answer: Answer) -> None:
    cut = answer(completion="D", finish_reason="length")
    answer(completion="E", parent_id=cut.id)
    failed = answer(completion="F", finish_reason="error")
    answer(completion="G", parent_id=failed.id)
    with pytest.raises(EmptySnapshot):
        frozen(db)


def test_an_evaluation_that_names_a_parent_says_nothing_of_it(db: Database, answer: Answer) -> None:
    first = answer(completion="H")
    answer(completion="I", parent_id=first.id, source="eval")
    with pytest.raises(EmptySnapshot):
        frozen(db)


def test_a_rated_answer_that_was_asked_again_keeps_its_rating(db: Database, answer: Answer) -> None:
    answer(1, again=True, completion="liked, and curious for another")
    answer(again=True, completion="not accepted")
    assert frozen(db) == {
        ("thumbs", "liked, and curious for another", True),
        ("regenerated", "not accepted", False),
    }


def test_one_prompt_with_two_answers_are_two_examples(db: Database, answer: Answer) -> None:
    prompt = [{"role": "user", "content": "q"}]
    answer(1, messages=prompt, completion="yes")
    answer(-1, messages=prompt, completion="no")
    answer(1, messages=prompt, completion="yes", user_key="bob")
    assert frozen(db) == {("thumbs", "yes", True), ("thumbs", "no", False)}


def test_contradicting_votes_are_settled_by_the_majority_of_users(db: Database, answer: Answer) -> None:
    prompt = [{"role": "user", "content": "q"}]
    for user, thumb in (("ann", -1), ("ann", -1), ("ann", -1), ("bob", 1), ("eve", 1)):
        answer(thumb, messages=prompt, completion="x", user_key=user)
    answer(1, messages=prompt, completion="tie", user_key="ann")
    answer(-1, messages=prompt, completion="tie", user_key="bob")
    assert frozen(db) == {("thumbs", "x", True)}


def test_an_answer_of_the_responses_api_is_learned_from_as_one_of_a_chat(
    db: Database, answer: Answer
) -> None:
    answer(1, api="responses", completion="brief")
    assert frozen(db) == {("thumbs", "brief", True)}


def test_what_may_not_be_learned_from_is_left_out_and_counted(db: Database, answer: Answer) -> None:
    answer(1, completion="fine")
    answer(1, source="eval")
    answer(1, finish_reason="abort")
    answer(1, completion="")
    flagged = answer(1)
    answer(1, user_key="bob")
    consent.withdraw(db, "default", "bob")
    answer(1, api="completions", messages=[{"role": "prompt", "content": "x"}])
    answer(1, completion="far too long" * 10)
    held = answer(1)
    answer(1, endpoint="elsewhere")
    with db.transaction() as connection:
        connection.execute(b"UPDATE obs.content SET pii_flags = '{email}' WHERE id = %s", (flagged.id,))
    params = FreezeParams(endpoint="assistant", max_chars=50, held_out=(prompt_hash(held.messages),))
    snapshot = datasets.freeze_kto(db, params)
    assert dict(snapshot.counts) == {
        "requests": 9, "traffic": 8, "finished": 7, "content": 6, "clean": 5, "consent": 4, "chat": 3,
        "offered": 3, "length": 2, "held_out": 1, "conflict": 1, "duplicate": 1, "user_cap": 1,
    }  # fmt: skip
    assert list(snapshot.counts)[:3] == ["requests", "traffic", "finished"]
    assert (snapshot.rows, snapshot.desirable, snapshot.undesirable) == (1, 1, 0)


@pytest.mark.parametrize(
    ("ledger", "trains"),
    [
        ([], False),
        ([("granted", None)], True),
        ([("granted", "ann")], True),
        ([("granted", "bob")], False),
        ([("granted", None), ("withdrawn", "ann")], False),
        ([("granted", "ann"), ("withdrawn", None)], False),
        ([("granted", None), ("withdrawn", "ann"), ("granted", "ann")], True),
        ([("withdrawn", "bob"), ("granted", None)], True),
    ],
)
def test_consent(db: Database, answer: Answer, ledger: list[tuple[str, str | None]], trains: bool) -> None:
    with psycopg.connect(db.url) as connection:
        connection.execute("ALTER TABLE obs.consent DISABLE TRIGGER append_only")
        connection.execute("DELETE FROM obs.consent")
    for action, user in ledger:
        (consent.grant if action == "granted" else consent.withdraw)(db, "default", user)
    answer(1, user_key="ann")
    with db.transaction() as connection:
        row = connection.execute(b"SELECT count(*) AS n FROM obs.eligible").fetchone()
    assert row == {"n": int(trains)}
    if trains:
        assert datasets.freeze_kto(db, PARAMS).rows == 1
    else:
        with pytest.raises(EmptySnapshot, match="consent 0"):
            datasets.freeze_kto(db, PARAMS)


def test_consent_is_audited_and_needs_a_tenant(db: Database) -> None:
    consent.withdraw(db, "default", "ann", actor="desk")
    event = audit.events(db, limit=1)[0]
    assert (event.action, event.actor, event.detail["user_key"]) == ("consent.withdrawn", "desk", "ann")
    assert [entry.action for entry in consent.history(db, "default")] == ["granted", "withdrawn"]
    with pytest.raises(NotFound):
        consent.grant(db, "nosuch")


def test_a_heavy_user_is_capped_by_the_seed(db: Database, answer: Answer) -> None:
    for _ in range(10):
        answer(1, user_key="heavy")
    answer(-1, user_key="light")
    sets = [
        datasets.freeze_kto(db, FreezeParams(endpoint="assistant", per_user_cap=3, seed=seed))
        for seed in (1, 1, 2)
    ]
    assert [snapshot.rows for snapshot in sets] == [4, 4, 4]
    assert sets[0].set_hash == sets[1].set_hash != sets[2].set_hash
    assert sets[0].counts["user_cap"] == 4


def test_old_requests_are_left_out_by_since(db: Database, answer: Answer) -> None:
    answer(1, started_at=datetime.now(UTC) - timedelta(days=3))
    answer(1, completion="new")
    params = FreezeParams(endpoint="assistant", since=datetime.now(UTC) - timedelta(days=1))
    assert frozen(db, params) == {("thumbs", "new", True)}


def fill(db: Database, answer: Answer, make_feedback: MakeFeedback, n: int = 60, down: int = 20) -> None:
    chance = random.Random(5)
    for number in range(n):
        answer(-1 if number < down else 1, completion=f"answer {number}", user_key=f"u{chance.randrange(9)}")


def test_the_same_moment_gives_the_same_set_whatever_came_later(
    db: Database, answer: Answer, make_feedback: MakeFeedback
) -> None:
    fill(db, answer, make_feedback)
    early = answer(1, completion="changes its mind later")
    first = datasets.freeze_kto(db, PARAMS)
    fill(db, answer, make_feedback)
    feedback.insert_batch(db, [make_feedback(early.id, value=-1, at=first.as_of - timedelta(hours=1))])
    answer(1, started_at=first.as_of - timedelta(minutes=5))  # a spool that was late
    consent.withdraw(db, "default")
    with psycopg.connect(db.url, autocommit=True) as connection:
        # Rewrite the tables in another physical order.
        connection.execute("CREATE INDEX shuffled ON obs.feedback (md5(id::text))")
        connection.execute("CLUSTER obs.feedback USING shuffled")
        connection.execute("SET noria.actor = 'x'")
        connection.execute("UPDATE obs.content SET completion = completion WHERE random() < 0.5")
    again = datasets.freeze_kto(db, FreezeParams(endpoint="assistant", as_of=first.as_of))
    assert again.id != first.id
    assert (again.set_hash, again.rows, again.counts) == (first.set_hash, first.rows, first.counts)
    assert datasets.rows(db, again.id) == datasets.rows(db, first.id)
    assert datasets.replay(db, first.id) == first.set_hash
    with pytest.raises(EmptySnapshot):
        datasets.freeze_kto(db, PARAMS)


@pytest.mark.parametrize("down", [10, 30, 50])
def test_every_window_of_sixteen_sees_both_labels(
    db: Database, answer: Answer, make_feedback: MakeFeedback, down: int
) -> None:
    fill(db, answer, make_feedback, n=60, down=down)
    labels = [item.label for item in datasets.rows(db, datasets.freeze_kto(db, PARAMS).id)]
    assert labels.count(False) == down
    for start in range(len(labels) - 15):
        assert len(set(labels[start : start + 16])) == 2
    other = datasets.freeze_kto(db, FreezeParams(endpoint="assistant", seed=1))
    assert other.set_hash == datasets.freeze_kto(db, PARAMS).set_hash
    hashes = [item.payload_hash for item in datasets.rows(db, other.id)]
    assert hashes != sorted(hashes)


def test_the_set_hash_can_be_made_by_hand_and_damage_is_found(
    db: Database, answer: Answer, make_feedback: MakeFeedback
) -> None:
    fill(db, answer, make_feedback, n=8, down=3)
    answer(
        1, messages=[{"role": "user", "content": 'tab\t"quote" \\ \x01 é 🙂', "z": [1, True, None], "a": {}}]
    )
    snapshot = datasets.freeze_kto(db, PARAMS)
    hashes = sorted(sha256_hex(canonical_json(item.payload)) for item in datasets.rows(db, snapshot.id))
    assert snapshot.set_hash == hashlib.sha256("\n".join(hashes).encode()).hexdigest()
    assert datasets.verify(db, snapshot.id)
    with pytest.raises(InvalidValue, match="append-only"), db.transaction() as connection:
        connection.execute(b"UPDATE train.snapshot_row SET label = NOT label")
    with psycopg.connect(db.url) as connection:
        connection.execute("ALTER TABLE train.snapshot_row DISABLE TRIGGER append_only")
        connection.execute(
            "UPDATE train.snapshot_row SET payload = payload || '{\"label\": 3}' WHERE ordinal = 1"
        )
    assert not datasets.verify(db, snapshot.id)


def test_snapshots_are_found_and_audited(db: Database, answer: Answer, make_feedback: MakeFeedback) -> None:
    assert datasets.latest(db, "assistant") is None
    answer(1)
    first, second = datasets.freeze_kto(db, PARAMS), datasets.freeze_kto(db, PARAMS)
    assert datasets.latest(db, "assistant") == second == datasets.show(db, second.id)
    assert first.set_hash == second.set_hash
    event = audit.events(db, limit=1)[0]
    assert (event.action, event.subject, event.detail["set_hash"]) == (
        "snapshot.frozen", second.id, second.set_hash,
    )  # fmt: skip
    unknown = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(NotFound):
        datasets.show(db, unknown)
    with pytest.raises(NotFound):
        datasets.rows(db, unknown)


def test_the_moment_must_be_past_and_the_endpoint_known(db: Database, answer: Answer) -> None:
    with pytest.raises(ValueError, match="as_of"):
        datasets.freeze_kto(
            db, FreezeParams(endpoint="assistant", as_of=datetime.now(UTC) + timedelta(hours=1))
        )
    with pytest.raises(EmptySnapshot, match="requests 0"):
        datasets.freeze_kto(db, FreezeParams(endpoint="nosuch"))


def test_a_freeze_waits_for_writers_under_way(db: Database, answer: Answer) -> None:
    answer(1)
    record = answer(completion="rated late")
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with ThreadPoolExecutor(1) as pool, psycopg.connect(db.url) as writer:
        writer.execute(
            "INSERT INTO obs.feedback (tenant, request_id, kind, value, actor)"
            " VALUES ('default', %s, 'thumbs', 1, 'ann')",
            (record.id,),
        )
        freezing = pool.submit(datasets.freeze_kto, db, PARAMS)
        while writer.execute(waiting).fetchone() == (0,):
            assert not freezing.done()
        writer.commit()
        snapshot = freezing.result()
    assert snapshot.rows == 2


def test_writers_and_freezes_do_not_deadlock(
    db: Database, answer: Answer, make_request: Callable[..., RequestRecord]
) -> None:
    answer(1)

    def write(_: int) -> int:
        return requests.insert_batch(db, [make_request() for _ in range(20)])

    with ThreadPoolExecutor(3) as pool:
        written = pool.map(write, range(30))
        frozen_rows = [datasets.freeze_kto(db, PARAMS).rows for _ in range(5)]
        assert sum(written) == 600
    assert frozen_rows == [1] * 5
