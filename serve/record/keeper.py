"""Keeps the request record of a gateway: begins and ends entries in the spool, and counts what it could not.

Recording never stops serving: a spool that refuses is counted and reported, and the answer goes on.
"""

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from db.rows import FeedbackRecord, Finish, RequestRecord
from serve.errors import SpoolFull
from serve.record.spool import SpoolWriter

if TYPE_CHECKING:
    from serve.choice import Tally

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Keeper:
    """The gateway's way into the spool. `dropped` counts records that were not kept."""

    spool: SpoolWriter
    dropped: int = 0

    def entry(self, record: RequestRecord) -> "Entry":
        """An entry for a request that is about to start; `record` is as if it had been interrupted."""
        return Entry(self, record)

    def feedback(self, record: FeedbackRecord) -> None:
        """Keep an act of feedback. Raises SpoolFull: it must not be acknowledged then."""
        self.spool.feedback(record)


class Entry:
    """The record of one request."""

    def __init__(self, keeper: Keeper, record: RequestRecord) -> None:
        self._keeper = keeper
        self._begun = record
        self._kept = False
        self._ended = False

    def begin(self) -> None:
        """From here on the request is known to have been, whatever happens to this process."""
        try:
            self._keeper.spool.begin(self._begun)
            self._kept = True
        except SpoolFull as error:
            self._drop(error)

    def end(self, reason: str, error: str | None, tally: "Tally", completion: str) -> bool:
        """Complete the record; False if it was complete already."""
        if self._ended:
            return False
        self._ended = True
        if self._kept:
            try:
                self._keeper.spool.end(self._begun, self._completed(reason, error, tally, completion))
            except SpoolFull as failure:
                self._drop(failure)
        return True

    def _completed(self, reason: str, error: str | None, tally: "Tally", completion: str) -> RequestRecord:
        now = datetime.now(UTC)
        first = tally.first_token
        return replace(
            self._begun,
            finished_at=now,
            finish_reason=cast(Finish, reason),
            error=error,
            prompt_tokens=tally.prompt_tokens,
            cached_tokens=tally.cached_tokens,
            completion_tokens=tally.completion_tokens,
            queue_ms=None if tally.stats is None else tally.stats.queue_s * 1e3,
            ttft_ms=None if first is None else (first - tally.started) * 1e3,
            duration_ms=(now - self._begun.started_at).total_seconds() * 1e3,
            completion=completion,
        )

    def _drop(self, error: SpoolFull) -> None:
        self._keeper.dropped += 1
        logger.error("request record dropped: %s", error, extra={"action": "record_dropped"})
