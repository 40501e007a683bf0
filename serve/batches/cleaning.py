"""Removes what nobody needs any more: bytes of files that are gone, parts of batches that have ended."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import db.batches
from db.database import Database
from db.errors import DbError
from lora.errors import StoreError
from lora.store import ObjectStore
from serve.batches.ending import forget_parts
from serve.files import Files
from serve.following import Following

EVERY_S = 600.0
RUBBISH_AGE = timedelta(days=2)
"""Of a part that has no row: its gateway was refused, or died, between the two. No batch may take so long."""

logger = logging.getLogger(__name__)


class Cleaning(Following):
    """Every gateway does it; doing it twice is harmless."""

    def __init__(self, database: Database, objects: ObjectStore, files: Files) -> None:
        self._database = database
        self._objects = objects
        self._files = files

    def look(self) -> None:
        """Blocks. Raises DatabaseAway or StoreUnavailable."""
        self._files.clean()
        for batch_id in db.batches.leftovers(self._database):
            forget_parts(self._database, self._objects, batch_id)
        oldest = datetime.now(UTC) - RUBBISH_AGE
        rubbish = [item for item in self._objects.list("batches/") if item.modified <= oldest]
        unfinished = db.batches.unfinished(self._database) if rubbish else set()
        for item in rubbish:
            if item.key.split("/")[1] not in unfinished:
                self._objects.delete(item.key)
        self._objects.sweep()

    async def _follow(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self.look)
            except (DbError, StoreError) as error:
                logger.warning("files not cleaned: %s", error, extra={"action": "cleaning_failed"})
            await asyncio.sleep(EVERY_S)
