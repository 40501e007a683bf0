"""The completer of evaluations on the platform: one batch, marked as evaluation, that leaves no file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import db.batches
import db.requests
from evals import BatchCompleter, Completion, CompletionFailed, Conversation

ASKED: dict[str, Any] = {"max_tokens": 5, "temperature": 0.0}


@pytest.fixture
def completer(served: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchCompleter]:
    monkeypatch.setattr("evals.batch_completer.LOOK_S", 0.05)
    made = BatchCompleter(f"{served.url}/v1", headers={"x-noria-source": "eval"})
    yield made
    made.close()


def conversations(*questions: str) -> list[Conversation]:
    return [[{"role": "user", "content": question}] for question in questions]


def completions(served: Any, questions: list[str]) -> dict[str, tuple[str, str, int]]:
    """What the record says was answered, by question."""
    query = (
        b"SELECT messages -> 0 ->> 'content' AS question, completion, finish_reason, completion_tokens"
        b" FROM obs.inference_log WHERE source = 'eval' AND messages -> 0 ->> 'content' = ANY (%(wanted)s)"
    )
    with served.database.transaction() as connection:
        rows = connection.execute(query, {"wanted": questions}).fetchall()
    return {
        row["question"]: (row["completion"], row["finish_reason"], row["completion_tokens"]) for row in rows
    }


def test_every_conversation_is_answered_in_its_place(served: Any, completer: BatchCompleter) -> None:
    questions = [f"question {number} é" for number in range(30)]
    seen: list[int] = []
    answers = completer.complete(conversations(*questions), model="base", **ASKED, done=seen.append)
    recorded = served.until(lambda: len(found := completions(served, questions)) == 30 and found)
    for question, answer in zip(questions, answers, strict=True):
        assert isinstance(answer, Completion)
        assert (answer.text, answer.finish_reason, answer.completion_tokens) == recorded[question]
        assert answer.served_by == f"{'ab' * 6}-base"
    assert seen == sorted(seen)
    assert seen[-1] == 30


def test_its_requests_are_evaluation_and_its_files_are_removed(
    served: Any, completer: BatchCompleter
) -> None:
    with served.client as client:
        before = [file.id for file in client.files.list(limit=1).data]
        completer.complete(conversations("hello there"), model="assistant", **ASKED, done=lambda count: None)
        assert [file.id for file in client.files.list(limit=1).data] == before
    newest = db.batches.page(served.database, "default", limit=1)[0]
    assert (newest.source, newest.status) == ("eval", "completed")


def test_a_question_without_an_answer_says_why(served: Any, completer: BatchCompleter) -> None:
    asked = conversations("fits", "x" * 600)
    fine, failed = completer.complete(asked, model="base", **ASKED, done=lambda count: None)
    assert isinstance(fine, Completion)
    assert isinstance(failed, CompletionFailed)
    assert "HTTP 400" in str(failed)
    assert "maximum context length" in str(failed)


def test_a_batch_that_cannot_be_is_the_reason_of_every_question(completer: BatchCompleter) -> None:
    answers = completer.complete([], model="base", **ASKED, done=lambda count: None)
    assert answers == []
    asked = conversations("a", "x" * (1 << 21))
    answers = completer.complete(asked, model="base", **ASKED, done=lambda count: None)
    assert [str(answer) for answer in answers] == [
        "the batch failed: the line is longer than the 1048576 bytes allowed"
    ] * 2


def test_an_endpoint_that_is_away_is_the_reason_of_every_question() -> None:
    completer = BatchCompleter("http://127.0.0.1:1/v1", timeout_s=0.2)
    answers = completer.complete(conversations("a", "b"), model="base", **ASKED, done=lambda count: None)
    completer.close()
    assert [type(answer) for answer in answers] == [CompletionFailed] * 2
    assert "APIConnectionError" in str(answers[0])


def test_an_evaluation_that_is_interrupted_cancels_its_batch(served: Any, completer: BatchCompleter) -> None:
    def interrupt(count: int) -> None:
        raise KeyboardInterrupt

    questions = conversations(*[f"question {number}" for number in range(200)])
    with pytest.raises(KeyboardInterrupt):
        completer.complete(questions, model="base", max_tokens=64, temperature=0.0, done=interrupt)
    newest = db.batches.page(served.database, "default", limit=1)[0].id
    ended = served.until(
        lambda: (
            row
            if (row := db.batches.get(served.database, "default", newest)).status
            not in ("in_progress", "cancelling")
            else None
        )
    )
    assert ended.status in ("cancelled", "completed")
