"""Makes the log's weekly partitions ahead of time while a gateway runs; an alarm where one was missing.

Stored conversations past their time are forgotten on the way.
"""

import asyncio
import logging

from db import partitions, responses
from db.database import Database
from db.errors import DbError
from serve.following import Following

EVERY_S = 600.0

logger = logging.getLogger(__name__)


class Upkeep(Following):
    """Looks every EVERY_S seconds. `stranded`: rows of requests, contents and embeddings that found no week.

    Rows of the past year are moved into weeks of their own at once; the alarm stands until the next look.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.stranded = 0

    def look(self) -> None:
        """Count what is stranded, make the weeks that are missing, forget expired answers. Blocks.

        Raises DbError.
        """
        self.stranded = sum(partitions.default_rows(self._database).values())
        if self.stranded:
            logger.error("%d rows found no week", self.stranded, extra={"action": "rows_stranded"})
        partitions.ensure(self._database)
        responses.delete_expired(self._database)

    async def _follow(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self.look)
            except DbError as error:
                logger.warning("database not looked after: %s", error, extra={"action": "upkeep_failed"})
            await asyncio.sleep(EVERY_S)
