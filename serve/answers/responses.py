"""Answers of the Responses API: the object in each of its states, and the events of a stream in order.

Order of a stream: response.created, response.in_progress; for each item its opening, its deltas and its end;
response.completed or response.incomplete. A failure is an `error` event and response.failed. Events are
numbered from 0.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from serve.answers import logprobs
from serve.answers.output_items import Event, OutputItems
from serve.choice import Piece
from serve.error_table import ErrorAnswer
from serve.parsing.parts import OutputParser, Part, Reasoning

State = Literal["in_progress", "completed", "incomplete", "failed"]


@dataclass(frozen=True, slots=True)
class Frame:
    """What is equal in all states of an answer.

    first_item: items before those of the output, with which their ids are numbered on. created_at is in Unix
    seconds. echoed: what the request asked for, by the names of the answer.
    """

    request_id: str
    created_at: int
    first_item: int
    echoed: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The answer's own."""
        return response_id(self.request_id)

    def answer(self, state: State, output: list[dict[str, Any]], **known: Any) -> dict[str, Any]:
        """The object in one of its states."""
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "status": state,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            **self.echoed,
            "output": output,
            "usage": None,
            **known,
        }


class ResponseFormat:
    """One answer on its way from pieces to events and to the object. wanted_logprobs None: none are shown."""

    def __init__(
        self, frame: Frame, parser: OutputParser, tokens: logprobs.TokenBytes, wanted_logprobs: int | None
    ) -> None:
        self.frame = frame
        self._parser = parser
        self._tokens = tokens
        self._wanted_logprobs = wanted_logprobs
        self._items = OutputItems(self._new_id)
        self._ids = 0
        self._sent = 0
        self._ended: Literal["completed", "incomplete"] = "completed"
        self._pending: list[dict[str, Any]] = []
        self._unclaimed = 0
        self._reasoning_tokens = 0

    def opening(self) -> Iterator[Event]:
        """The events before any text."""
        for kind in ("response.created", "response.in_progress"):
            yield self._numbered({"type": kind, "response": self.frame.answer("in_progress", [])})

    def events(self, piece: Piece) -> Iterator[Event]:
        """The events of a piece; with the last piece the items end."""
        if self._wanted_logprobs is not None:
            self._pending += logprobs.for_chat(logprobs.TokenNames(self._tokens), piece.logprobs)["content"]
        parts = self._parser.push(piece.text)
        if piece.finish is not None:
            parts = [*parts, *self._parser.finish()]
        self._count(parts, len(piece.token_ids))
        for part in parts:
            known, self._pending = self._pending, []
            yield from map(self._numbered, self._items.take(part, known))
        if piece.finish is not None:
            self._ended = "incomplete" if piece.finish == "length" else "completed"
            yield from map(self._numbered, self._items.finish(self._ended, self._pending))

    def whole(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """The finished answer. usage: that of a chat."""
        known: dict[str, Any] = {"usage": for_responses(usage, self._reasoning_tokens)}
        if self._ended == "incomplete":
            known["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            known["completed_at"] = int(time.time())
        return self.frame.answer(self._ended, self._items.shown(self._ended), **known)

    def last(self, answer: Mapping[str, Any]) -> Event:
        """The event that ends a stream with its finished answer."""
        return self._numbered({"type": f"response.{answer['status']}", "response": answer})

    def failed(self, error: ErrorAnswer) -> Iterator[Event]:
        """The events that end a stream which failed."""
        detail = error.body["error"]
        told = {"code": detail["code"], "message": detail["message"], "param": detail["param"]}
        yield self._numbered({"type": "error", **told})
        known = {"code": "server_error", "message": detail["message"]}
        answer = self.frame.answer("failed", self._items.shown("incomplete"), error=known)
        yield self._numbered({"type": "response.failed", "response": answer})

    def _count(self, parts: list[Part], tokens: int) -> None:
        """Tokens are reasoning's if the next part that comes of them is."""
        self._unclaimed += tokens
        if parts:
            if isinstance(parts[-1], Reasoning):
                self._reasoning_tokens += self._unclaimed
            self._unclaimed = 0

    def _new_id(self, prefix: str) -> str:
        self._ids += 1
        return item_id(prefix, self.frame.request_id, self.frame.first_item + self._ids - 1)

    def _numbered(self, event: Event) -> Event:
        self._sent += 1
        return event | {"sequence_number": self._sent - 1}


def response_id(request_id: str) -> str:
    """The id of an answer out of its request's."""
    return f"resp_{request_id.replace('-', '')}"


def item_id(prefix: str, request_id: str, place: int) -> str:
    """The id of the `place`-th item of a turn, its input counted first."""
    return f"{prefix}_{request_id.replace('-', '')}{place:04x}"


def for_responses(usage: Mapping[str, Any], reasoning_tokens: int) -> dict[str, Any]:
    """The usage of a chat by the names of the Responses API. Writing to the prefix cache is never counted."""
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {
            "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
            "cache_write_tokens": 0,
        },
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": usage["total_tokens"],
    }
