"""Loading, replacing, unloading, pinning and checking adapters while streams run.

Load: read and match the folder, put it into the store, have every replica of the base model take it, and only
then name it in the registry: so a failure anywhere leaves nothing listed, and an answer of success means that
every gateway and every replica has it. Unload: the name goes first, the weights follow on the replicas once
the last request on them has ended. Pin: every replica takes it, then the registry says so, then they keep it.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from db.rows import AdapterRow
from lora.background import BackgroundThreads
from lora.registry import RegistrySnapshot
from lora.store import AdapterStore
from serve.candidate import Candidate, CandidateReader
from serve.errors import (
    AdapterAlreadyLoaded,
    AdapterNameTaken,
    AdapterNotServed,
    InvalidField,
    NoReplica,
    RemoteError,
    UnknownAdapterName,
)
from serve.fleet import Fleet
from serve.name_locks import NameLocks
from serve.pins import Pins
from serve.protocol.admin import LoadAdapterBody
from serve.registry_writer import RegistryWriter
from serve.routing import is_forced


@dataclass(frozen=True, slots=True)
class Loaded:
    """A load that succeeded. `replicas`: replica -> what it now tells of the adapter."""

    name: str
    candidate: Candidate
    pinned: bool
    replicas: Mapping[str, Mapping[str, Any]]

    @property
    def warnings(self) -> list[str]:
        """Of reading and matching it, and of the replicas, each once."""
        told = [warning for replica in self.replicas.values() for warning in replica["warnings"]]
        return list(dict.fromkeys([*self.candidate.report.warnings, *told]))


@dataclass(frozen=True, slots=True)
class Unloaded:
    """`replicas`: replica -> what it begins to free: bytes, and requests that have to end before."""

    name: str
    digest: str
    replicas: Mapping[str, Mapping[str, int]]


class AdapterAdmin:
    """The changes that the admin API may make. One name is changed by one call at a time."""

    def __init__(
        self,
        reader: CandidateReader,
        registry: RegistryWriter,
        store: AdapterStore,
        files: BackgroundThreads,
        fleet: Fleet,
        pins: Pins,
        snapshot: Callable[[], RegistrySnapshot],
    ) -> None:
        self._reader = reader
        self._registry = registry
        self._store = store
        self._files = files
        self._fleet = fleet
        self._pins = pins
        self._snapshot = snapshot
        self._locks = NameLocks()

    async def load(self, body: LoadAdapterBody) -> Loaded:
        """Load an adapter, or replace it where that is asked for; the same bytes again change nothing.

        Raises BadRequest, AdapterNameTaken, AdapterAlreadyLoaded, NoReplica, RegistryUnavailable, and what
        reading, matching, storing and loading raise.
        """
        async with self._locks.hold(body.lora_name):
            existing = await self._existing(body)
            candidate = await self._files.run(lambda: self._reader.read(body))
            if existing is not None:
                _check_may_become(existing, candidate)
            if not self._fleet.members(candidate.model.name):
                raise NoReplica(candidate.model.name)
            await self._keep_copy(candidate)
            try:
                replicas = await self._take(candidate.model.name, candidate.adapter.digest, candidate.forced)
                if body.pinned:
                    await self._hold(candidate.model.name, candidate.adapter.digest, candidate.forced)
                if not await self._registry.publish(
                    body.lora_name, candidate, pinned=body.pinned, replace=body.load_inplace
                ):
                    raise AdapterAlreadyLoaded(body.lora_name)
            except BaseException:  # also where the caller is gone: nothing may stay that nobody can name
                await self._free_if_unused(candidate.model.name, candidate.adapter.digest)
                raise
            await self._settle(candidate.model.name)
            if existing is not None:
                await self._free_if_unused(existing.base_model, existing.digest)
            return Loaded(body.lora_name, candidate, body.pinned, replicas)

    async def unload(self, name: str) -> Unloaded:
        """Stop naming an adapter, and free it. Raises UnknownAdapterName or RegistryUnavailable."""
        async with self._locks.hold(name):
            row = await self._registry.row(name)
            if row is None or not row.loaded:
                raise UnknownAdapterName(name)
            await self._registry.retract(name)
            await self._settle(row.base_model)
            return Unloaded(name, row.digest, await self._free_if_unused(row.base_model, row.digest))

    async def pin(self, name: str, pinned: bool) -> None:
        """Have every replica keep the adapter from now on, also after a restart; or no longer.

        Raises UnknownAdapterName, AdapterNotServed, NoReplica, RegistryUnavailable, and what loading raises.
        """
        async with self._locks.hold(name):
            row = await self._served(name)
            if pinned:
                await self._hold(row.base_model, row.digest, is_forced(row))
            await self._registry.pin(name, pinned)
            await self._settle(row.base_model)

    async def check(self, name: str) -> dict[str, Any]:
        """The numeric self-check of one replica: adapter against merged weights.

        Raises UnknownAdapterName, AdapterNotServed, NoReplica, and what loading raises.
        """
        row = await self._served(name)
        member = self._fleet.pick(row.base_model, row.digest)
        figures = await member.link.call("check", row.digest, is_forced(row))
        return {"id": row.id, "digest": row.digest, "replica": member.report.replica, **figures}

    async def _existing(self, body: LoadAdapterBody) -> AdapterRow | None:
        """The row that this load would change. Raises AdapterNameTaken or AdapterAlreadyLoaded."""
        snapshot = self._snapshot()
        if body.lora_name in snapshot.base_models:
            raise AdapterNameTaken(body.lora_name, "a served base model")
        if body.lora_name in snapshot.endpoints:
            raise AdapterNameTaken(body.lora_name, "an endpoint")
        row = await self._registry.row(body.lora_name)
        if row is not None and row.loaded and not body.load_inplace:
            raise AdapterAlreadyLoaded(body.lora_name)
        return row

    async def _served(self, name: str) -> AdapterRow:
        row = await self._registry.row(name)
        if row is None:
            raise UnknownAdapterName(name, param="id")
        if not is_served(row):
            raise AdapterNotServed(name)
        return row

    async def _keep_copy(self, candidate: Candidate) -> None:
        digest = await self._files.run(lambda: self._store.put(candidate.adapter.folder))
        if digest != candidate.adapter.digest:
            raise InvalidField("lora_path changed while it was read; load it again", "lora_path")

    async def _take(self, base_model: str, digest: str, forced: bool) -> dict[str, Any]:
        """Every replica of the base model loads it, or the first failure is raised."""
        return await self._fleet.call_all(base_model, "load", digest, forced)

    async def _hold(self, base_model: str, digest: str, forced: bool) -> None:
        """Every replica of the base model pins it, or none does and the first failure is raised."""
        try:
            await self._fleet.call_all(base_model, "pin", digest, forced)
        except BaseException:
            await self._pins.restore(base_model)
            raise

    async def _settle(self, base_model: str) -> None:
        """Every gateway routes by the registry as it is now, and every replica keeps what it says."""
        await self._registry.spread()
        await self._pins.tell(base_model)

    async def _free_if_unused(self, base_model: str, digest: str) -> dict[str, Any]:
        """Have the replicas drop a version, unless another name or an endpoint still uses it."""
        if any(row.digest == digest for row in self._snapshot().adapters.values() if is_served(row)):
            return {}
        with contextlib.suppress(NoReplica, RemoteError):  # what is gone or closing holds nothing
            return await self._fleet.call_all(base_model, "unload", digest)
        return {}


def is_served(row: AdapterRow) -> bool:
    """Whether requests may reach the adapter: by its own id, or through an endpoint."""
    return row.loaded or row.status in ("prod", "canary")


def _check_may_become(existing: AdapterRow, candidate: Candidate) -> None:
    """A name keeps its base model, and a version of an endpoint never changes. Raises AdapterNameTaken."""
    if existing.base_model != candidate.model.name:
        raise AdapterNameTaken(existing.id, f"an adapter of base model {existing.base_model!r}")
    if existing.endpoint is not None and existing.digest != candidate.adapter.digest:
        raise AdapterNameTaken(
            existing.id, f"a version of endpoint {existing.endpoint!r}, which never changes"
        )
