"""The registry as the admin API changes it, and the moment when every gateway routes by a change."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import db.registry
from db.database import Database
from db.errors import Conflict, DatabaseAway, NotFound
from db.rows import AdapterRow
from lora.registry import RegistrySnapshot
from serve.candidate import Candidate
from serve.errors import AdapterNameTaken, RegistryUnavailable
from serve.fleet import Fleet

T = TypeVar("T")

ACTOR = "admin-api"
SPREAD_S = 10.0
"""How long to wait until every gateway routes by a change."""
_POLL_S = 0.02


class RegistryWriter:
    """Every call raises RegistryUnavailable, which names no host, where the database is away."""

    def __init__(self, database: Database, fleet: Fleet, snapshot: Callable[[], RegistrySnapshot]) -> None:
        self._database = database
        self._fleet = fleet
        self._snapshot = snapshot

    async def row(self, name: str) -> AdapterRow | None:
        """The newest row of an adapter, whatever its status; None for an unknown name."""
        try:
            return await asked(lambda: db.registry.adapter(self._database, name))
        except NotFound:
            return None

    async def publish(self, name: str, candidate: Candidate, *, pinned: bool, replace: bool) -> bool:
        """Name the candidate; False where somebody else has just loaded the name. Raises AdapterNameTaken."""
        adapter = candidate.adapter
        try:
            return await asked(
                lambda: db.registry.publish_adapter(
                    self._database,
                    name,
                    digest=adapter.digest,
                    base_model=candidate.model.name,
                    store_uri=f"store:{adapter.digest}",
                    config=candidate.config(),
                    size_bytes=adapter.bytes,
                    pinned=pinned,
                    replace=replace,
                    actor=ACTOR,
                )
            )
        except Conflict as error:
            raise AdapterNameTaken(name, "a base model or an endpoint") from error

    async def retract(self, name: str) -> None:
        """Name it no more."""
        await asked(lambda: db.registry.set_loaded(self._database, name, False, actor=ACTOR))

    async def pin(self, name: str, pinned: bool) -> None:
        """Pin or unpin. Raises IllegalTransition where it is not served any more."""
        await asked(lambda: db.registry.set_pinned(self._database, name, pinned, actor=ACTOR))

    async def spread(self) -> None:
        """Return once this gateway, and every other one that lives, routes by the registry as it is now."""
        epoch = await asked(lambda: db.registry.epoch(self._database))
        try:
            async with asyncio.timeout(SPREAD_S):
                while self._snapshot().epoch < epoch or self._fleet.view.lowest_epoch < epoch:
                    await asyncio.sleep(_POLL_S)
                    await self._fleet.refresh()
        except TimeoutError as error:
            raise RegistryUnavailable from error


async def asked(query: Callable[[], T]) -> T:
    """Ask the database on a thread. Raises RegistryUnavailable, which names no host, where it is away."""
    try:
        return await asyncio.to_thread(query)
    except DatabaseAway as error:
        raise RegistryUnavailable from error
