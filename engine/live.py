"""Requests that were taken in and have not ended, and the events not yet handed out.

Each choice of a request leaves exactly once, with exactly one last event. Knows no blocks and no runner.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from engine.errors import DuplicateRequest
from engine.group import Group, Search, make_group
from engine.records import FinishReason, Request, SampledRow, TokenEvent
from engine.sequence import Sequence


class LiveRequests:
    """Groups of live sequences by request id, and an outbox of events in the order they happened."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._events: list[TokenEvent] = []

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def get(self, request_id: str) -> Group | None:
        return self._groups.get(request_id)

    def group_of(self, seq: Sequence) -> Group:
        """The group of a live sequence."""
        return self._groups[seq.request.id]

    def check_new(self, request_id: str) -> None:
        """Raises DuplicateRequest for the id of a live request."""
        if request_id in self._groups:
            raise DuplicateRequest(request_id)

    def open(self, request: Request, lead: Sequence) -> None:
        """Take in a request with the first of its sequences."""
        self._groups[request.id] = make_group(request, lead)

    def tell(self, seq: Sequence, row: SampledRow) -> None:
        """Put down a token that did not end its choice."""
        group = self._groups[seq.request.id]
        self._events += group.with_scores(group.tell(seq, row))

    def close(
        self, seq: Sequence, finish: FinishReason, *, row: SampledRow | None = None, error: str | None = None
    ) -> bool:
        """A sequence has ended, with `row` if a token ended it; says whether its request has, too."""
        group = self._groups[seq.request.id]
        self._events += group.with_scores(group.close(seq, finish, time.monotonic(), row, error))
        return self._leave(group)

    def conclude(self, search: Search) -> None:
        """A search is over: put down its results."""
        self._events += search.with_scores(search.results(time.monotonic()))
        self._leave(search)

    def _leave(self, group: Group) -> bool:
        if not group.live:
            del self._groups[group.request.id]
        return not group.live

    def take_events(self) -> list[TokenEvent]:
        """All events since the last call."""
        events, self._events = self._events, []
        return events
