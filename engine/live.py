"""Requests that were taken in and have not ended, and the events not yet handed out.

Each request leaves exactly once, with exactly one last event. Knows no blocks and no runner.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from engine.errors import DuplicateRequest
from engine.records import FinishReason, SampledRow, TokenEvent, TokenLogprob
from engine.sequence import Sequence


class LiveRequests:
    """Live sequences by request id, and an outbox of events in the order they happened."""

    def __init__(self) -> None:
        self._seqs: dict[str, Sequence] = {}
        self._events: list[TokenEvent] = []

    def __len__(self) -> int:
        return len(self._seqs)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._seqs.values())

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def get(self, request_id: str) -> Sequence | None:
        return self._seqs.get(request_id)

    def check_new(self, request_id: str) -> None:
        """Raises DuplicateRequest for the id of a live request."""
        if request_id in self._seqs:
            raise DuplicateRequest(request_id)

    def open(self, seq: Sequence) -> None:
        self._seqs[seq.request.id] = seq

    def tell(self, seq: Sequence, row: SampledRow) -> None:
        """Put down a token that did not end the request."""
        self._events.append(TokenEvent(seq.request.id, (row.token_id,), _logprobs(row)))

    def close(
        self, seq: Sequence, finish: FinishReason, *, row: SampledRow | None = None, error: str | None = None
    ) -> None:
        """Put down the last event, with the token that ended the request if one did."""
        del self._seqs[seq.request.id]
        event = TokenEvent(
            request_id=seq.request.id,
            token_ids=() if row is None else (row.token_id,),
            logprobs=None if row is None else _logprobs(row),
            finish=finish,
            stop_token=row.token_id if row is not None and finish == "stop" else None,
            stats=seq.stats(time.monotonic()),
            error=error,
        )
        self._events.append(event)

    def take_events(self) -> list[TokenEvent]:
        """All events since the last call."""
        events, self._events = self._events, []
        return events


def _logprobs(row: SampledRow) -> tuple[TokenLogprob, ...] | None:
    return None if row.logprob is None else (row.logprob,)
