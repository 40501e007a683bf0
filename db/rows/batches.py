"""Rows of clients' files and of batches of requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from db.rows.words import Json, RequestSource

FilePurpose: TypeAlias = Literal["batch", "batch_output"]
BatchStatus: TypeAlias = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """One file. `sha256` is hexadecimal; `expires_at` None: it stays until it is deleted."""

    id: str
    tenant: str
    filename: str
    purpose: FilePurpose
    bytes: int
    sha256: str
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedBatch:
    """What was asked for with a batch. `output_seconds`: how long its output files are kept."""

    id: str
    tenant: str
    endpoint: str
    input_file_id: str
    completion_window: str
    metadata: Json | None
    output_seconds: int | None
    source: RequestSource
    user_key: str | None
    conversation: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch(AskedBatch):
    """What a batch is created from."""

    window_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow(AskedBatch):
    """One batch. `completed` and `failed` count the lines whose answers are in the object store.

    `lease_no` is the number of the newest lease. Each *_at is None until the batch comes to it. These are
    all columns of the table.
    """

    status: BatchStatus
    errors: Sequence[Json] | None
    model: str | None
    output_file_id: str | None
    error_file_id: str | None
    total: int
    completed: int
    failed: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    created_at: datetime
    expires_at: datetime
    in_progress_at: datetime | None
    finalizing_at: datetime | None
    completed_at: datetime | None
    failed_at: datetime | None
    expired_at: datetime | None
    cancelling_at: datetime | None
    cancelled_at: datetime | None
    lease_no: int
    lease_until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart:
    """Answers in one object: `output_bytes` of lines for the output file, then `error_bytes` for the other.

    `lines` are the numbers of the input lines answered.
    """

    name: str
    sha256: str
    output_bytes: int
    error_bytes: int
    lines: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPart(StoredPart):
    """A part as it is counted: what it adds to the batch's figures."""

    completed: int
    failed: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
