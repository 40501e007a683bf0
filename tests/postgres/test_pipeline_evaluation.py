"""Evaluation into the gate's tables: results, cases, attempts, and runs that must not count."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from db import consent, feedback, promotion, requests
from db import evals as rows
from db.canonical import prompt_hash
from db.database import Database
from db.errors import EmptySnapshot
from db.rows import FreezeParams
from evals import Case, Completion, CompletionFailed, Conversation, Done, MetricSpec, Suite
from pipeline.dataset import freeze
from pipeline.errors import EvaluationVoid, WrongSubject
from pipeline.evaluation import Subject, evaluate

BASE_DIGEST = "sha256:" + "b" * 64
BASE = Subject(digest="base", model="tiny", base_digest=BASE_DIGEST)


class Model:
    """A Completer that stops on the first `stops` of its questions; `fails` of them get no answer at all."""

    def __init__(self, stops: int, fails: int = 0, served_by: str | None = f"{'b' * 12}-base") -> None:
        self.stops, self.fails, self.served_by = stops, fails, served_by

    def complete(
        self,
        conversations: Sequence[Conversation],
        *,
        model: str,
        max_tokens: int,
        temperature: float,
        done: Done,
    ) -> list[Completion | CompletionFailed]:
        return [self.answer(int(messages[-1]["content"])) for messages in conversations]

    def answer(self, number: int) -> Completion | CompletionFailed:
        if number >= 40 - self.fails:
            return CompletionFailed("no replica")
        return Completion("An answer.", "stop" if number < self.stops else "length", 3, self.served_by)


def suite(floor: float | None = None, hash: str = "sha256:1") -> Suite:
    cases = tuple(Case(f"c{n}", ({"role": "user", "content": str(n)},)) for n in range(40))
    metric = MetricSpec("stops", "higher", floor, 0.05, 30, 0.1, True)
    return Suite("small", ("stops",), 8, 0.0, (metric,), cases, hash)


def test_results_and_cases_are_stored_with_bounds_and_attempts(db: Database, endpoint: str) -> None:
    seen: list[tuple[str, int, int]] = []
    result = evaluate(db, Model(30), BASE, [suite()], progress=lambda *at: seen.append(at))["small"]
    evaluate(db, Model(20), BASE, [suite()])
    (stored,) = rows.latest(db, "base", BASE_DIGEST, "small")
    assert (stored.metric, stored.value, stored.n, stored.attempt) == ("stops", 0.5, 40, 2)
    assert (result.metric("stops").value, seen[-1]) == (0.75, ("small", 40, 40))
    assert len(rows.held_out(db)) == 40


def test_the_gate_reads_what_was_stored(db: Database, add_adapter: Callable[..., Any]) -> None:
    adapter = add_adapter("assistant-v1")
    subject = Subject(digest=adapter.digest, model=adapter.id, base_digest=BASE_DIGEST)
    evaluate(db, Model(20), BASE, [suite(floor=0.5)])
    served = f"{'b' * 12}-{adapter.digest.removeprefix('sha256:')[:12]}"
    evaluate(db, Model(22, served_by=served), subject, [suite(floor=0.5)])
    assert {blocker.metric for blocker in promotion.blockers(db, adapter.id)} == {"stops"}
    evaluate(db, Model(39, served_by=served), subject, [suite(floor=0.5)])
    assert promotion.blockers(db, adapter.id) == []


def test_unscored_cases_within_the_limit_are_counted_beside_the_value(db: Database, endpoint: str) -> None:
    evaluate(db, Model(40, fails=4), BASE, [suite()])
    (stored,) = rows.latest(db, "base", BASE_DIGEST, "small")
    assert (stored.value, stored.n, stored.unscored) == (1.0, 36, 4)


def test_too_many_unscored_cases_store_nothing(db: Database, endpoint: str) -> None:
    with pytest.raises(
        EvaluationVoid, match=r"5 of 40 scores missing, allowed share 0\.1; for .*: no replica"
    ):
        evaluate(db, Model(40, fails=5), BASE, [suite()])
    assert rows.latest(db, "base", BASE_DIGEST, "small") == []


def test_answers_of_another_version_store_nothing(db: Database, endpoint: str) -> None:
    served = f"{'b' * 12}-{'c' * 12}"
    with pytest.raises(WrongSubject, match=f"'tiny' with fingerprint {'b' * 12}-base, an answer came from"):
        evaluate(db, Model(40, served_by=served), BASE, [suite()])
    with pytest.raises(WrongSubject, match="an endpoint that names none"):
        evaluate(db, Model(40, served_by=None), BASE, [suite()])
    assert rows.latest(db, "base", BASE_DIGEST, "small") == []
    evaluate(db, Model(40), BASE, [suite()])
    assert len(rows.latest(db, "base", BASE_DIGEST, "small")) == 1


def test_no_prompt_that_was_ever_evaluated_is_frozen_for_training(
    db: Database, endpoint: str, make_request: Callable[..., Any], make_feedback: Callable[..., Any]
) -> None:
    evaluate(db, Model(40), BASE, [suite()])
    consent.grant(db, "default")
    asked = [make_request(messages=[{"role": "user", "content": text}]) for text in ("7", "8", "not a case")]
    requests.insert_batch(db, asked)
    feedback.insert_batch(db, [make_feedback(record.id, value=1) for record in asked])
    held = prompt_hash(asked[2].messages)
    with pytest.raises(EmptySnapshot, match="length 3, held_out 0"):
        freeze(db, FreezeParams(endpoint=endpoint, held_out=(held,)))
    snapshot = freeze(db, FreezeParams(endpoint=endpoint))
    assert (snapshot.rows, snapshot.counts["length"], snapshot.counts["held_out"]) == (1, 3, 1)
