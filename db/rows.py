"""The records that cross the border of db: one frozen dataclass per kind of row.

Plain data with no SQL and no third-party import, so any package may hold them. Times are
timezone-aware UTC datetimes, ids are UUID strings, shares are per cent (0 to 100, two decimals).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

AdapterStatus: TypeAlias = Literal["candidate", "canary", "prod", "retired", "rejected"]
FeedbackKind: TypeAlias = Literal["thumbs", "regenerate", "edit", "comment"]
Finish: TypeAlias = Literal["stop", "length", "abort", "error", "interrupted"]
RequestSource: TypeAlias = Literal["traffic", "eval"]
Variant: TypeAlias = Literal["prod", "canary", "base", "direct"]
RunStatus: TypeAlias = Literal["running", "finished", "failed"]
Verdict: TypeAlias = Literal["superior", "non-inferior", "worse", "inconclusive"]
Json: TypeAlias = Mapping[str, Any]


# --- serving registry ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModelRow:
    name: str
    digest: str
    folder: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRow:
    """`experiment` salts the sticky split; it changes when the first canary of a new round begins.

    `anchor` is the id of the adapter that no promotion may fall behind, however many come between.
    """

    name: str
    tenant: str
    base_model: str
    experiment: str
    anchor: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRow:
    """`canary_start` is the first of the 10,000 buckets of a canary: [start, start + traffic_pct * 100).

    `replaced` is the adapter that was prod when this one was promoted (None: the base model).
    `loaded` says that clients may name the adapter by its own id.
    """

    id: str
    digest: str
    base_model: str
    endpoint: str | None
    status: AdapterStatus
    traffic_pct: float
    canary_start: int | None
    loaded: bool
    store_uri: str
    config: Json
    bytes: int
    parent: str | None
    replaced: str | None
    run_id: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRows:
    """One consistent picture: all rows were read in the transaction that read `epoch`."""

    epoch: int
    base_models: tuple[BaseModelRow, ...]
    endpoints: tuple[EndpointRow, ...]
    adapters: tuple[AdapterRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterEventRow:
    """`kind`: registered, status, traffic, replaced, loaded, unloaded."""

    id: int
    adapter_id: str
    endpoint: str | None
    kind: str
    from_status: AdapterStatus | None
    to_status: AdapterStatus
    from_digest: str | None
    to_digest: str
    traffic_pct: float
    actor: str
    reason: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockerRow:
    """One reason against a promotion. `reason` is a stable word; `detail` is the sentence for people."""

    reason: str
    suite: str | None
    metric: str | None
    candidate_value: float | None
    current_value: float | None
    limit_value: float | None
    detail: str


# --- traffic ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One served request. `id` is a UUIDv7: the week of the row is read from it.

    `assigned_adapter_id` is what the split chose, `adapter_id`/`adapter_digest` what really answered
    (None: the base model). `messages` is the chat, or [{"role": "prompt", "content": ...}] for a
    plain completion. Times in milliseconds where the name ends in _ms.
    """

    id: str
    tenant: str
    endpoint: str | None
    requested_model: str
    base_model: str
    base_digest: str
    adapter_id: str | None
    adapter_digest: str | None
    assigned_adapter_id: str | None
    variant: Variant
    bucket: int | None
    experiment: str | None
    user_key: str
    parent_id: str | None
    api: Literal["chat", "completions"]
    started_at: datetime
    finished_at: datetime
    finish_reason: Finish
    error: str | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    queue_ms: float | None
    ttft_ms: float | None
    duration_ms: float
    sampling: Json
    stream: bool
    source: RequestSource
    messages: Sequence[Json]
    completion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackRecord:
    """One act of feedback; a later one of the same kind on the same request wins.

    thumbs carries `value` +1 or -1, edit and comment carry `text`, regenerate carries neither.
    """

    id: str
    tenant: str
    request_id: str
    kind: FeedbackKind
    value: int | None
    text: str | None
    actor: str
    idempotency_key: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentRow:
    """`user_key` None speaks for the whole tenant."""

    id: str
    tenant: str
    user_key: str | None
    action: Literal["granted", "withdrawn"]
    actor: str
    at: datetime


# --- training -----------------------------------------------------------------------------------


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
    """One training example. `payload` is {"prompt": [...], "completion": [...], "label": bool}.

    `origin`: thumbs, edit, edited, regenerated, accepted.
    """

    ordinal: int
    request_id: str
    origin: str
    label: bool
    payload: Json
    payload_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
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


# --- evaluation ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalMetricRow:
    """What the gate demands of one metric.

    `floor` bounds the confidence bound on the bad side (low when higher is better, else high).
    `tolerance` is the largest step for the worse against the current version, `anchor_tolerance`
    against the endpoint's anchor (None: the same as `tolerance`). `endpoint` None holds for all.
    """

    suite: str
    metric: str
    direction: Literal["higher", "lower"] = "higher"
    floor: float | None = None
    tolerance: float = 0.0
    anchor_tolerance: float | None = None
    min_n: int = 1
    max_unscored: float = 0.05
    required: bool = True
    endpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResultRow:
    """`subject` is an adapter digest or "base"; `unscored` counts cases without a usable score.

    `attempt` is given by the database when the result is stored (0 before).
    """

    subject: str
    base_digest: str
    suite: str
    suite_hash: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    unscored: int
    attempt: int = 0
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalCaseRow:
    """One answered case; `scores` maps a metric to its score, None where it could not be scored."""

    case_id: str
    prompt_hash: str
    completion: str
    finish_reason: str
    scores: Mapping[str, float | None] = field(default_factory=dict)


# --- canary -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigures:
    """One side of a canary, by assignment. `up_rate` is the mean over raters of each one's share of +1.

    `raters` are users with at least one rated answer; rates are over requests and None without any.
    """

    adapter_id: str | None
    configured_pct: float
    users: int
    requests: int
    rated: int
    raters: int
    up_rate: float | None
    variance: float | None
    rating_rate: float | None
    regenerate_rate: float | None
    error_rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryStatus:
    """`low`..`high` is the always-valid interval of candidate minus control up_rate.

    `horizon_raters`: raters each arm still needs before the interval can settle within `margin`
    when the arms are equal (None: cannot be told yet). `ratio_p` is the sample ratio check.
    """

    endpoint: str
    experiment: str
    candidate: ArmFigures
    control: ArmFigures
    since: datetime
    difference: float | None
    low: float | None
    high: float | None
    margin: float
    alpha: float
    ratio_p: float | None
    verdict: Verdict
    reason: str
    horizon_raters: int | None


# --- provenance and audit -----------------------------------------------------------------------


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
    seq: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: Json
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditProblem:
    seq: int
    problem: str
