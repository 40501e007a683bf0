"""Waits until what was served and said has reached the database, and counts what has not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from db import feedback, requests
from db.database import Database
from noria.demo.feedback import Rated
from noria.demo.traffic import Answer

PATIENCE_S = 30.0


def requests_landed(db: Database, answers: Iterable[Answer]) -> int:
    """How many of these answers have a row; waits until all have, half a minute at most."""
    return _landed([answer.request_id for answer in answers], lambda id: requests.get(db, id) is not None)


def feedback_landed(db: Database, rated: Iterable[Rated]) -> int:
    """How many of these answers have feedback on record; answers without a reaction are not looked at."""
    ids = [item.answer.request_id for item in rated if item.reaction.thumbs is not None]
    return _landed(ids, lambda id: bool(feedback.current(db, id)))


def _landed(ids: Sequence[str], has_row: Callable[[str], bool]) -> int:
    deadline = time.monotonic() + PATIENCE_S
    missing = [id for id in ids if not has_row(id)]
    while missing and time.monotonic() < deadline:
        time.sleep(0.5)
        missing = [id for id in missing if not has_row(id)]
    return len(ids) - len(missing)
