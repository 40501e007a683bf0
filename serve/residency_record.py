"""Writes serve.residency every few seconds, so that SQL can ask where adapters are.

Of several gateways the one that the directory names writes, for all replicas.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import db.residency
from db.database import Database
from db.errors import DbError
from db.rows import ResidencyRow
from serve.directory import ReplicaReport
from serve.following import Following

EVERY_S = 3.0

logger = logging.getLogger(__name__)


class ResidencyRecord(Following):
    """`reports`: the newest report of each replica; `chosen`: whether this gateway is the one to write."""

    def __init__(
        self,
        database: Database,
        reports: Callable[[], Sequence[ReplicaReport]],
        chosen: Callable[[], bool],
    ) -> None:
        self._database = database
        self._reports = reports
        self._chosen = chosen

    async def write(self) -> None:
        """Raises DbError."""
        rows = [row for report in self._reports() for row in _rows(report)]
        await asyncio.to_thread(db.residency.record, self._database, rows)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            if not self._chosen():
                continue
            try:
                await self.write()
            except DbError as error:
                logger.warning("residency not recorded: %s", error, extra={"action": "residency_unrecorded"})


def _rows(report: ReplicaReport) -> list[ResidencyRow]:
    return [
        ResidencyRow(
            replica=report.replica,
            base_model=report.base_model,
            adapter_digest=digest,
            state=item["state"],
            slot=item["slot"],
            bytes=item["bytes"],
            last_use=None if item["last_use"] is None else datetime.fromtimestamp(item["last_use"], UTC),
        )
        for digest, item in report.adapters.items()
    ]
