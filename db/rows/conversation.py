"""Rows of stored conversations."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from db.rows.words import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRow:
    """An answer of the Responses API; `id` is its request's. `answer`: the object without its output."""

    id: str
    tenant: str
    previous_id: str | None
    model: str
    status: Literal["completed", "incomplete"]
    input_items: Sequence[Json]
    output_items: Sequence[Json]
    answer: Json
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseTurn:
    """One turn of a stored conversation. `turns`, `octets`: from here to the newest turn, both included."""

    id: str
    previous_id: str | None
    input_items: Sequence[Json]
    output_items: Sequence[Json]
    turns: int
    octets: int
