import json
from collections.abc import Mapping
from typing import Any

import pytest

from serve.batches.answerer import MAX_LOST, Answerer, Into
from serve.batches.lines import Line
from serve.batches.outcome import Outcome, left_out
from serve.caller import Caller
from serve.errors import NoReplica, RemoteError, ReplicaLost, UnknownModel
from serve.ids import uuid7
from serve.protocol.batches import BatchLine

LINE = Line(number=7, offset=0, size=0, custom_id="mine")
BUSY = RemoteError("QueueFull", "1024 requests are waiting; at most 1024 may")
USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}


class Scripted(Answerer):
    """Meets these failures, then answers."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.ids: list[str] = []
        self._work = {"/v1/completions": self._scripted}

    async def _scripted(self, body: Mapping[str, Any], caller: Caller, into: Into) -> Outcome:
        self.ids.append(caller.id)
        if self._failures:
            raise self._failures.pop(0)
        return into({"object": "text_completion", "usage": USAGE})


async def outcome(answerer: Answerer, **body: Any) -> Outcome:
    request = BatchLine(custom_id="mine", method="POST", url="/v1/completions", body=body)
    return await answerer.answer(LINE, request, lambda: Caller(id=uuid7(), tenant="t"))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.batches.pauses.FIRST_S", 0.0)


async def test_an_answer_is_a_line_of_the_output() -> None:
    answerer = Scripted()
    made = await outcome(answerer)
    assert (made.number, made.failed) == (7, False)
    assert (made.input_tokens, made.cached_tokens, made.output_tokens) == (5, 2, 3)
    assert made.text.endswith(b"}\n")
    told = json.loads(made.text)
    assert told["custom_id"] == "mine"
    assert told["error"] is None
    assert told["response"] == {
        "status_code": 200,
        "request_id": answerer.ids[0],
        "body": {"object": "text_completion", "usage": USAGE},
    }


async def test_where_the_platform_is_busy_it_comes_again_as_another_request() -> None:
    answerer = Scripted(BUSY, NoReplica("base"), ReplicaLost(), *[BUSY] * 20)
    assert not (await outcome(answerer)).failed
    assert len(set(answerer.ids)) == 24


async def test_a_line_that_replicas_die_of_is_given_up() -> None:
    answerer = Scripted(*[ReplicaLost() for _ in range(MAX_LOST)])
    made = await outcome(answerer)
    assert made.failed
    response = json.loads(made.text)["response"]
    assert (response["status_code"], response["body"]["error"]["code"]) == (502, "replica_lost")


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (UnknownModel("nobody"), 404, "model_not_found"),
        (RemoteError("PromptTooLong", "too long", "prompt"), 400, "context_length_exceeded"),
        (KeyError("secret"), 500, "internal_error"),
    ],
)
async def test_a_refusal_is_the_answer(failure: Exception, status: int, code: str) -> None:
    made = await outcome(Scripted(failure))
    response = json.loads(made.text)["response"]
    assert (made.failed, response["status_code"], response["body"]["error"]["code"]) == (True, status, code)
    assert b"secret" not in made.text


def test_what_was_left_out_says_why() -> None:
    told = json.loads(left_out(LINE, "batch_expired", "too late").text)
    assert (told["response"], told["error"]) == (None, {"code": "batch_expired", "message": "too late"})
