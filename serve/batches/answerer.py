"""One line of a batch: the way of an HTTP request from its body on, again where the platform was busy."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from serve.answers.embeddings import written
from serve.batches.lines import Line
from serve.batches.outcome import Outcome, answered, refused
from serve.batches.pauses import growing_pauses
from serve.caller import Caller
from serve.conductor import Conductor
from serve.error_table import ErrorAnswer, answer_for
from serve.errors import InvalidField, ReplicaLost
from serve.protocol.batches import BatchEndpoint, BatchLine
from serve.protocol.chat import parse_chat
from serve.protocol.completions import parse_completion
from serve.protocol.embeddings import parse_embeddings
from serve.protocol.responses import parse_response
from serve.responder import Responder
from serve.vectors import VectorMaker, Wish
from serve.whole import whole, whole_turn

LONGEST_WAIT_S = 15.0
MAX_LOST = 3
"""A line whose replica went away so often may be what it died of."""

Into = Callable[[dict[str, Any]], Outcome]
Work = Callable[[Mapping[str, Any], Caller, Into], Awaitable[Outcome]]

logger = logging.getLogger(__name__)


class Answerer:
    """Answers lines of every endpoint that a batch may have."""

    def __init__(self, conductor: Conductor, responder: Responder, vectors: VectorMaker) -> None:
        self._conductor = conductor
        self._responder = responder
        self._vectors = vectors
        self._work: dict[BatchEndpoint, Work] = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._complete,
            "/v1/responses": self._respond,
            "/v1/embeddings": self._embed,
        }

    async def answer(self, line: Line, request: BatchLine, new_caller: Callable[[], Caller]) -> Outcome:
        """The outcome of a line; goes on for as long as the platform asks to come again. Never raises.

        new_caller: who asks, with another id for each try.
        """
        work, lost, pauses = self._work[request.url], 0, growing_pauses(LONGEST_WAIT_S)
        while True:
            caller = new_caller()
            try:
                return await work(request.body, caller, partial(answered, line, caller.id))
            except Exception as error:  # the boundary of a request: whatever happened is the line's answer
                answer = answer_for(error)
                lost += isinstance(error, ReplicaLost)
                if not _may_come_again(answer) or lost == MAX_LOST:
                    _tell(error, answer)
                    return refused(line, caller.id, answer)
            await asyncio.sleep(next(pauses))

    async def _chat(self, body: Mapping[str, Any], caller: Caller, into: Into) -> Outcome:
        return await whole(await self._conductor.chat(parse_chat(_unstreamed(body)), caller), into)

    async def _complete(self, body: Mapping[str, Any], caller: Caller, into: Into) -> Outcome:
        return await whole(await self._conductor.complete(parse_completion(_unstreamed(body)), caller), into)

    async def _respond(self, body: Mapping[str, Any], caller: Caller, into: Into) -> Outcome:
        turn = await self._responder.turn(parse_response(_unstreamed(body)), caller)
        return into(await whole_turn(self._responder, turn))

    async def _embed(self, body: Mapping[str, Any], caller: Caller, into: Into) -> Outcome:
        parsed = parse_embeddings(body)
        vectors = await self._vectors.make(Wish.of_embeddings(parsed), caller)
        return await asyncio.to_thread(
            lambda: into(json.loads(b"".join(written(parsed, caller.id, vectors))))
        )


def _unstreamed(body: Mapping[str, Any]) -> Mapping[str, Any]:
    if body.get("stream"):
        raise InvalidField("stream is true; allowed in a batch: false or nothing", "stream")
    return body


def _may_come_again(answer: ErrorAnswer) -> bool:
    """Whether the table of errors says so."""
    return "retry-after" in answer.headers


def _tell(error: Exception, answer: ErrorAnswer) -> None:
    if answer.body["error"]["code"] == "internal_error":
        logger.error("line of a batch failed", exc_info=error, extra={"action": "batch_line_failed"})
