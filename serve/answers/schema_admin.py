"""The shapes of what is answered about models, adapters, feedback and health, for the OpenAPI document."""

from typing import Any, Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from db.rows import AdapterStatus
from serve.answers.schema import CLOSED


@with_config(CLOSED)
class Form(TypedDict):
    """In what the model really computes."""

    weights: str
    kv_cache: str | None
    """null for a model that keeps none."""


@with_config(CLOSED)
class Model(TypedDict):
    """A name that `model` may be."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    """What answers by this name."""
    parent: str | None
    """The base model of an endpoint or an adapter."""
    max_model_len: int
    """Tokens of prompt and answer together."""
    kind: Literal["base", "endpoint", "adapter"]
    task: Literal["generate", "embed"]
    """Whether it generates text or makes vectors."""
    form: Form


@with_config(CLOSED)
class ModelList(TypedDict):
    """Everything that may be asked for."""

    object: Literal["list"]
    data: list[Model]


@with_config(CLOSED)
class Residency(TypedDict):
    """Where an adapter is on one replica."""

    replica: str
    state: str
    """store, disk, fetching, waiting (for memory), preparing, ready or draining."""
    bytes: int
    slot: int | None
    pins: int
    """Requests that use it."""
    waiting: int
    """Requests that wait for it."""
    pinned: bool
    last_use: float | None
    """Unix seconds."""
    load_seconds: float | None


@with_config(CLOSED)
class Adapter(TypedDict):
    """A row of the registry, and where the adapter is at this moment."""

    id: str
    object: Literal["adapter"]
    created: int
    digest: str
    base_model: str
    endpoint: str | None
    status: AdapterStatus
    traffic_pct: float | None
    loaded: bool
    pinned: bool
    parent: str | None
    run_id: str | None
    bytes: int | None
    residency: list[Residency]
    config: NotRequired[dict[str, Any]]
    """Its adapter_config.json; in the answer about one adapter."""


@with_config(CLOSED)
class AdapterList(TypedDict):
    """A page of the listing; the next one comes after `last_id`."""

    object: Literal["list"]
    data: list[Adapter]
    first_id: str | None
    last_id: str | None
    has_more: bool


@with_config(CLOSED)
class AdapterLoaded(TypedDict):
    """What a load did, for those who ask for JSON."""

    message: str
    object: Literal["adapter"]
    id: str
    digest: str
    base_model: str
    pinned: bool
    rank: int
    matched_modules: dict[str, Any]
    """Module -> kinds of tensors, rank, scale and bytes."""
    bytes: int
    base_match: str
    """By what the base model was recognised."""
    mapped: list[str]
    copies: list[str]
    files: dict[str, str]
    """File -> its SHA-256."""
    warnings: list[str]
    replicas: dict[str, Any]
    """Replica -> its residency."""


@with_config(CLOSED)
class AdapterUnloaded(TypedDict):
    """What an unload did, for those who ask for JSON."""

    message: str
    id: str
    digest: str
    replicas: dict[str, dict[str, int]]
    """Replica -> bytes that it frees, and requests that have to end before."""


class AdapterCheck(TypedDict):
    """The numeric self-check of one replica: the adapter against weights into which it was merged."""

    object: Literal["adapter.check"]
    id: str
    digest: str
    replica: str
    passed: bool


@with_config(CLOSED)
class Feedback(TypedDict):
    """An act of feedback, once the spool has it."""

    id: str
    object: Literal["feedback"]
    request_id: str
    kind: str


class Health(TypedDict):
    """ok; degraded: it serves, and something is away; unavailable: a base model has no replica."""

    status: Literal["ok", "degraded", "unavailable"]
    replicas: dict[str, int]
    """Base model -> replicas that are up."""
