"""What GET /v1/adapters shows: the registry's rows, each with where the adapter is at this moment."""

import asyncio
from collections.abc import Mapping
from typing import Any

import db.registry
from db.database import Database
from db.errors import NotFound
from db.rows import AdapterRow
from serve.answers.shared import page_of
from serve.errors import ReplicaLost, UnknownAdapterName
from serve.fleet import Fleet, Member
from serve.protocol.admin import AdapterQuery
from serve.registry_writer import asked

_ELSEWHERE = {
    "state": "store",
    "slot": None,
    "bytes": 0,
    "pins": 0,
    "waiting": 0,
    "pinned": False,
    "last_use": None,
    "load_seconds": None,
}

Residents = Mapping[str, Mapping[str, Any]]


class Listing:
    """Asks the registry for the rows and every replica for its residents."""

    def __init__(self, database: Database, fleet: Fleet) -> None:
        self._database = database
        self._fleet = fleet

    async def page(self, query: AdapterQuery) -> dict[str, Any]:
        """One page, in OpenAI's shape of a list. Raises RegistryUnavailable."""
        wanted = query.model_dump() | {"limit": query.limit + 1}
        rows = await asked(lambda: db.registry.page(self._database, **wanted))
        residents = await self._residents()
        return page_of([self._line(row, residents) for row in rows], query.limit)

    async def one(self, adapter_id: str) -> dict[str, Any]:
        """One adapter, whatever its status. Raises UnknownAdapterName or RegistryUnavailable."""
        try:
            row = await asked(lambda: db.registry.adapter(self._database, adapter_id))
        except NotFound as error:
            raise UnknownAdapterName(adapter_id, param="id") from error
        return self._line(row, await self._residents()) | {"config": row.config}

    async def _residents(self) -> dict[str, Residents]:
        """replica -> what it holds now; what it last reported where it goes away meanwhile."""
        members = self._fleet.members()
        answers = await asyncio.gather(*map(_ask, members))
        return {member.report.replica: answer for member, answer in zip(members, answers, strict=True)}

    def _line(self, row: AdapterRow, residents: Mapping[str, Residents]) -> dict[str, Any]:
        replicas = [member.report.replica for member in self._fleet.members(row.base_model)]
        return {
            "id": row.id,
            "object": "adapter",
            "created": int(row.created_at.timestamp()),
            "digest": row.digest,
            "base_model": row.base_model,
            "endpoint": row.endpoint,
            "status": row.status,
            "traffic_pct": row.traffic_pct,
            "loaded": row.loaded,
            "pinned": row.pinned,
            "parent": row.parent,
            "run_id": row.run_id,
            "bytes": row.bytes,
            "residency": [
                {"replica": name, **residents.get(name, {}).get(row.digest, _ELSEWHERE)} for name in replicas
            ],
        }


async def _ask(member: Member) -> Residents:
    try:
        found: Residents = await member.link.call("adapters")
    except ReplicaLost:
        return member.report.adapters
    return found
