"""From the name a client sends to the one adapter version that answers, fixed once for the request.

Order of resolution: adapter id, endpoint, base model. A name that is none of them is refused; the base
model never answers in its place.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from db.rows import AdapterRow, Variant
from engine.embeddingspec import read_embedding_spec
from engine.encoderspec import EncoderSpec
from engine.modelspec import ModelSpec, read_spec
from engine.tokenizer import Tokenizer
from lora.registry import RegistrySnapshot
from serve.config import ModelConfig, Task
from serve.errors import NoReplica, UnknownModel, WrongTask

FORCED = "forced_base"
"""Key in an adapter's stored config: it was accepted although it was trained on another base model."""

CHAT_TEMPLATE = "chat_template"
"""Key in an adapter's stored config: the text of its own chat template, where that is not the base's."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A base model as a gateway needs it: no weights.

    max_model_len: tokens of prompt and completion together, unless a small KV pool allows less.
    """

    config: ModelConfig
    spec: ModelSpec | EncoderSpec
    tokenizer: Tokenizer
    max_model_len: int

    @property
    def name(self) -> str:
        """The name by which clients and the registry know it."""
        return self.config.name


def load_model(config: ModelConfig) -> ServedModel:
    """Read the folder's configuration and tokenizer."""
    folder, length = config.folder, config.engine.max_model_len
    if config.task == "embed":
        vectors = read_embedding_spec(folder, max_tokens=length)
        return ServedModel(config, vectors.model, Tokenizer(folder), vectors.max_tokens)
    spec = read_spec(folder)
    return ServedModel(config, spec, Tokenizer(folder), length or spec.max_position)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Who answers a request. `assigned_adapter_id` is what the split chose, whoever answers in its place.

    `chat_template` is the text of the adapter's own, None where the base model's holds.
    """

    requested: str
    key: str
    model: ServedModel
    base_digest: str
    endpoint: str | None
    adapter_id: str | None
    adapter_digest: str | None
    assigned_adapter_id: str | None
    variant: Variant
    bucket: int | None
    experiment: str | None
    forced: bool
    chat_template: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """One thing that `model` may name. `root` says what answers now, `parent` the base model."""

    name: str
    kind: Literal["base", "endpoint", "adapter"]
    base_model: str
    root: str
    parent: str | None
    created_at: datetime


class Router:
    """Routes by the newest registry snapshot this process has."""

    def __init__(self, snapshot: Callable[[], RegistrySnapshot], models: Mapping[str, ServedModel]) -> None:
        self._snapshot = snapshot
        self._models = models

    def route(self, name: str, key: str, task: Task | None = "generate") -> Route:
        """task: what is wanted of the model, None for nothing but its name.

        Raises UnknownModel, WrongTask, or NoReplica for a base model that this app was not started with.
        """
        snapshot = self._snapshot()
        target = snapshot.resolve(name)
        if target is None:
            raise UnknownModel(name)
        model = self._models.get(target.base_model)
        base = snapshot.base_models.get(target.base_model)
        if model is None or base is None:
            raise NoReplica(target.base_model)
        if task not in (None, model.config.task):
            raise WrongTask(name, model.config.task)
        chosen = snapshot.assign(target, key)
        adapter = snapshot.adapters.get(chosen.adapter_id) if chosen.adapter_id else None
        return Route(
            requested=name,
            key=key,
            model=model,
            base_digest=base.digest,
            endpoint=target.endpoint,
            adapter_id=chosen.adapter_id,
            adapter_digest=chosen.digest,
            assigned_adapter_id=chosen.assigned_id,
            variant=chosen.variant,
            bucket=chosen.bucket,
            experiment=chosen.experiment,
            forced=adapter is not None and is_forced(adapter),
            chat_template=adapter.config.get(CHAT_TEMPLATE) if adapter is not None else None,
        )

    def names(self) -> list[Name]:
        """Everything that may be asked for: base models, endpoints, loaded adapters."""
        snapshot = self._snapshot()
        found = [*_base_names(snapshot), *_endpoint_names(snapshot), *_adapter_names(snapshot)]
        return [name for name in found if name.base_model in self._models]


def _base_names(snapshot: RegistrySnapshot) -> list[Name]:
    return [
        Name(
            name=row.name,
            kind="base",
            base_model=row.name,
            root=row.folder,
            parent=None,
            created_at=row.created_at,
        )
        for row in snapshot.base_models.values()
    ]


def _endpoint_names(snapshot: RegistrySnapshot) -> list[Name]:
    return [
        Name(
            name=row.name,
            kind="endpoint",
            base_model=row.base_model,
            root=prod.id if (prod := snapshot.prod_of(row.name)) else row.base_model,
            parent=row.base_model,
            created_at=row.created_at,
        )
        for row in snapshot.endpoints.values()
    ]


def _adapter_names(snapshot: RegistrySnapshot) -> list[Name]:
    return [
        Name(
            name=row.id,
            kind="adapter",
            base_model=row.base_model,
            root=row.digest,
            parent=row.base_model,
            created_at=row.created_at,
        )
        for row in snapshot.adapters.values()
        if row.loaded
    ]


def is_forced(adapter: AdapterRow) -> bool:
    """Whether the adapter was loaded by force onto a base model it does not name."""
    return adapter.config.get(FORCED) is True
