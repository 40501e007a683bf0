"""Rows of the registry: what is served, and what stands against a promotion."""

from dataclasses import dataclass
from datetime import datetime

from db.rows.words import AdapterStatus, Json


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModelRow:
    """A base model; `digest` is over its files, `folder` is where it was when it was registered."""

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
    `loaded` says that clients may name the adapter by its own id, `pinned` that replicas keep it resident.
    """

    id: str
    digest: str
    base_model: str
    endpoint: str | None
    status: AdapterStatus
    traffic_pct: float
    canary_start: int | None
    loaded: bool
    pinned: bool
    store_uri: str
    config: Json
    bytes: int
    parent: str | None
    replaced: str | None
    run_id: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRows:
    """One consistent picture: all rows were read in the transaction that read `epoch`.

    `mark` tells the epoch from the same number of another history, such as a restored backup's; "" where none
    is known. `adapters` are in order of id.
    """

    epoch: int
    mark: str = ""
    base_models: tuple[BaseModelRow, ...]
    endpoints: tuple[EndpointRow, ...]
    adapters: tuple[AdapterRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterEventRow:
    """`kind`: registered, status, traffic, replaced, loaded, unloaded, pinned, unpinned."""

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
class ResidencyRow:
    """Where one adapter is on one replica. `bytes` of memory that it takes there."""

    replica: str
    base_model: str
    adapter_digest: str
    state: str
    slot: int | None
    bytes: int
    last_use: datetime | None


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
