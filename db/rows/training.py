"""Rows of training: frozen datasets and runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from db.rows.words import Json, RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeParams:
    """What goes into a KTO snapshot. Lengths are in characters of the completion.

    `held_out` lists sha256 hex digests of prompts (see db.canonical.prompt_hash) that must never train.
    `as_of` None means now. `since` leaves out requests that started before it.
    """

    endpoint: str
    tenant: str = "default"
    as_of: datetime | None = None
    since: datetime | None = None
    seed: int = 0
    per_user_cap: int = 200
    min_chars: int = 1
    max_chars: int = 20_000
    held_out: tuple[str, ...] = ()
    created_by: str = "noria"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRow:
    """`counts` names what was left at each filter, in order. `sql` and `params` rebuild the set."""

    id: str
    tenant: str
    endpoint: str
    method: str
    as_of: datetime
    seed: int
    params: Json
    sql: str
    counts: Mapping[str, int]
    rows: int
    desirable: int
    undesirable: int
    set_hash: str
    created_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotItem:
    """One training example. `payload`: {"prompt": [...], "completion": [...], "finish_reason", "label"}.

    `finish_reason` is "stop" or "length" (the answer was cut). `origin`: thumbs, edit (the user's own text),
    corrected (the answer that an edit replaces), regenerated, accepted.
    """

    ordinal: int
    request_id: str
    origin: str
    label: bool
    payload: Json
    payload_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One training run; `figures` are those of its end, its curve lies in points of their own."""

    id: str
    endpoint: str
    adapter_id: str
    method: str
    snapshot_id: str
    base_model: str
    base_digest: str
    parent: str | None
    params: Json
    versions: Json
    status: RunStatus
    step: int
    total_steps: int | None
    figures: Json
    adapter_digest: str | None
    error: str | None
    started_at: datetime
    heartbeat_at: datetime
    finished_at: datetime | None
