"""Loading, replacing and unloading adapters while streams run.

Load: read and match the folder, put it into the store, have every replica of the base model take it into a
slot, and only then name it in the registry: so a failure anywhere leaves nothing listed, and an answer of
success means that every gateway and every replica has it. Unload: the name goes first, the weights follow
on the replicas once the last request on them has ended.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import db.registry
from db.database import Database
from db.errors import DatabaseAway, NotFound
from db.rows import AdapterRow
from lora.format import Adapter, MatchReport, check_against, read_adapter, resolve_adapter_path
from lora.registry import RegistrySnapshot
from lora.store import AdapterStore
from serve.config import AppConfig
from serve.errors import (
    AdapterAlreadyLoaded,
    AdapterNameTaken,
    InvalidField,
    NoReplica,
    RegistryUnavailable,
    UnknownAdapterName,
)
from serve.fleet import Fleet
from serve.protocol.admin import LoadAdapterBody
from serve.routing import FORCED, ServedModel

T = TypeVar("T")

ACTOR = "admin-api"
SPREAD_S = 10.0
"""How long to wait until every gateway routes by a change."""
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Candidate:
    """A folder that was read and fits a base model."""

    adapter: Adapter
    model: ServedModel
    report: MatchReport

    @property
    def forced(self) -> bool:
        """Whether the adapter names another base model and was accepted all the same."""
        return self.report.base_match == "forced"

    def config(self) -> dict[str, Any]:
        """What the registry keeps of it."""
        return dict(self.adapter.config.canonical()) | ({FORCED: True} if self.forced else {})


class AdapterAdmin:
    """The changes that the admin API may make. One name is changed by one call at a time."""

    def __init__(
        self,
        config: AppConfig,
        models: dict[str, ServedModel],
        database: Database,
        store: AdapterStore,
        fleet: Fleet,
        snapshot: Callable[[], RegistrySnapshot],
    ) -> None:
        self._config = config
        self._models = models
        self._database = database
        self._store = store
        self._fleet = fleet
        self._snapshot = snapshot
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def load(self, body: LoadAdapterBody) -> tuple[str, ...]:
        """Load or replace an adapter; returns warnings.

        Raises BadRequest, AdapterNameTaken, AdapterAlreadyLoaded, NoReplica, RegistryUnavailable, and what
        reading, matching, storing and loading raise.
        """
        async with self._locks[body.lora_name]:
            existing = await self._existing(body)
            candidate = await asyncio.to_thread(self._read, body)
            if existing is not None:
                _check_may_become(existing, candidate)
            digest = await asyncio.to_thread(self._store.put, candidate.adapter.folder)
            if digest != candidate.adapter.digest:
                raise InvalidField("lora_path changed while it was read; load it again", "lora_path")
            await self._fleet.call_all(candidate.model.name, "load", digest, candidate.forced)
            await self._register(body.lora_name, existing, candidate)
            await self._spread()
            if existing is not None and existing.digest != digest:
                await self._free(existing)
            return candidate.report.warnings

    async def unload(self, name: str) -> None:
        """Stop naming an adapter, and free it. Raises UnknownAdapterName or RegistryUnavailable."""
        async with self._locks[name]:
            row = await self._row(name)
            if row is None or not row.loaded:
                raise UnknownAdapterName(name)
            await _asked(lambda: db.registry.set_loaded(self._database, name, False, actor=ACTOR))
            await self._spread()
            await self._free(row)

    async def listing(self) -> list[dict[str, Any]]:
        """Every adapter of the registry's snapshot, with its state on each replica."""
        rows = self._snapshot().adapters.values()
        return [self._line(row) for row in sorted(rows, key=lambda row: row.id)]

    def _line(self, row: AdapterRow) -> dict[str, Any]:
        members = self._fleet.members(row.base_model)
        return {
            "id": row.id,
            "digest": row.digest,
            "base_model": row.base_model,
            "endpoint": row.endpoint,
            "status": row.status,
            "traffic_pct": row.traffic_pct,
            "loaded": row.loaded,
            "bytes": row.bytes,
            "replicas": [
                {
                    "replica": member.report.replica,
                    **member.report.adapters.get(row.digest, {"state": "store"}),
                }
                for member in members
            ],
        }

    async def _existing(self, body: LoadAdapterBody) -> AdapterRow | None:
        """The row that this load would change. Raises AdapterNameTaken or AdapterAlreadyLoaded."""
        snapshot = self._snapshot()
        if body.lora_name in snapshot.base_models or body.lora_name in self._models:
            raise AdapterNameTaken(body.lora_name, "a served base model")
        if body.lora_name in snapshot.endpoints:
            raise AdapterNameTaken(body.lora_name, "an endpoint")
        row = await self._row(body.lora_name)
        if row is not None and row.loaded and not body.load_inplace:
            raise AdapterAlreadyLoaded(body.lora_name)
        return row

    def _read(self, body: LoadAdapterBody) -> Candidate:
        """Blocks: reads and hashes the folder."""
        folder = resolve_adapter_path(body.lora_path, self._config.adapter_roots)
        adapter = read_adapter(folder)
        model = self._base_of(body, adapter)
        if not self._fleet.members(model.name):
            raise NoReplica(model.name)
        report = check_against(
            adapter,
            model.spec.adapter_targets.linear,
            base_digest=self._base_digest(model),
            base_names=(model.name, str(model.config.folder), *model.config.aliases),
            max_rank=model.config.engine.max_lora_rank,
            force=body.force,
        )
        return Candidate(adapter, model, report)

    def _base_of(self, body: LoadAdapterBody, adapter: Adapter) -> ServedModel:
        """The base model that is named, the only one there is, or the one the adapter itself names."""
        allowed = ", ".join(sorted(self._models))
        if body.base_model is not None:
            if body.base_model not in self._models:
                raise InvalidField(f"base_model is {body.base_model!r}; allowed: {allowed}", "base_model")
            return self._models[body.base_model]
        if len(self._models) == 1:
            return next(iter(self._models.values()))
        config = adapter.config
        for model in self._models.values():
            names = (model.name, str(model.config.folder), *model.config.aliases)
            if config.revision == self._base_digest(model) or config.base_model_name_or_path in names:
                return model
        raise InvalidField(
            f"base_model is missing, the adapter has {config.base_model_name_or_path!r}; allowed: {allowed}",
            "base_model",
        )

    def _base_digest(self, model: ServedModel) -> str:
        row = self._snapshot().base_models.get(model.name)
        if row is None:
            raise NoReplica(model.name)
        return row.digest

    async def _register(self, name: str, existing: AdapterRow | None, candidate: Candidate) -> None:
        facts: dict[str, Any] = {
            "digest": candidate.adapter.digest,
            "store_uri": f"store:{candidate.adapter.digest}",
            "config": candidate.config(),
            "size_bytes": candidate.adapter.bytes,
            "actor": ACTOR,
        }
        if existing is None:
            base = candidate.model.name
            await _asked(
                lambda: db.registry.register_adapter(self._database, id=name, base_model=base, **facts)
            )
        elif existing.digest != candidate.adapter.digest:
            await _asked(lambda: db.registry.replace_adapter(self._database, name, **facts))
        if existing is None or not existing.loaded:
            await _asked(lambda: db.registry.set_loaded(self._database, name, True, actor=ACTOR))

    async def _free(self, row: AdapterRow) -> None:
        """Have the replicas drop a version, unless another name or an endpoint still uses it."""
        users = [other for other in self._snapshot().adapters.values() if other.digest == row.digest]
        if not any(other.loaded or other.status in ("prod", "canary") for other in users):
            await self._fleet.call_all(row.base_model, "unload", row.digest)

    async def _spread(self) -> None:
        """Return once this gateway, and every other one that lives, routes by the registry as it is now."""
        epoch = await _asked(lambda: db.registry.epoch(self._database))
        try:
            async with asyncio.timeout(SPREAD_S):
                while self._snapshot().epoch < epoch or self._fleet.view.lowest_epoch < epoch:
                    await asyncio.sleep(_POLL_S)
                    await self._fleet.refresh()
        except TimeoutError as error:
            raise RegistryUnavailable from error

    async def _row(self, name: str) -> AdapterRow | None:
        try:
            return await _asked(lambda: db.registry.adapter(self._database, name))
        except NotFound:
            return None


async def _asked(query: Callable[[], T]) -> T:
    """Ask the database on a thread. Raises RegistryUnavailable, which names no host, where it is away."""
    try:
        return await asyncio.to_thread(query)
    except DatabaseAway as error:
        raise RegistryUnavailable from error


def _check_may_become(existing: AdapterRow, candidate: Candidate) -> None:
    """A name keeps its base model, and a version of an endpoint never changes. Raises AdapterNameTaken."""
    if existing.base_model != candidate.model.name:
        raise AdapterNameTaken(existing.id, f"an adapter of base model {existing.base_model!r}")
    if existing.endpoint is not None and existing.digest != candidate.adapter.digest:
        raise AdapterNameTaken(
            existing.id, f"a version of endpoint {existing.endpoint!r}, which never changes"
        )
