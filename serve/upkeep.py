"""Makes the log's weekly partitions ahead of time while a gateway runs; an alarm where one was missing."""

import asyncio
import contextlib
import logging

from db import partitions
from db.database import Database
from db.errors import DbError

EVERY_S = 600.0

logger = logging.getLogger(__name__)


class Upkeep:
    """Looks every EVERY_S seconds. `stranded`: rows of requests, contents and embeddings that found no week.

    Rows of the past year are moved into weeks of their own at once; the alarm stands until the next look.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._task: asyncio.Task[None] | None = None
        self.stranded = 0

    def start(self) -> None:
        """Look now, and go on in the background."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def look(self) -> None:
        """Count what is stranded, then make the weeks that are missing. Blocks. Raises DbError."""
        self.stranded = sum(partitions.default_rows(self._database).values())
        if self.stranded:
            logger.error("%d rows found no week", self.stranded, extra={"action": "rows_stranded"})
        partitions.ensure(self._database)

    async def _follow(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self.look)
            except DbError as error:
                logger.warning("partitions not looked after: %s", error, extra={"action": "upkeep_failed"})
            await asyncio.sleep(EVERY_S)
