"""Rows that lead from an answer to what taught it and back, and the audit ledger."""

from dataclasses import dataclass
from datetime import datetime

from db.rows.words import AdapterStatus, Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenanceRow:
    """One training row behind a served request; the training part is None for an untrained answer."""

    request_id: str
    adapter_id: str | None
    adapter_digest: str | None
    run_id: str | None
    snapshot_id: str | None
    set_hash: str | None
    ordinal: int | None
    source_request_id: str | None
    origin: str | None
    label: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaughtRow:
    """An adapter that a request's row was trained into; `status` None: trained but never registered."""

    adapter_id: str
    adapter_digest: str
    run_id: str
    snapshot_id: str
    status: AdapterStatus | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEventRow:
    """One event of the ledger; `hash` is in hex and covers the event before."""

    seq: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: Json
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditProblem:
    """One way in which the event `seq` is not what was written."""

    seq: int
    problem: str
