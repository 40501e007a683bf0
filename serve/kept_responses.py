"""Answers of the Responses API on their way to the database and back.

An answer never waits long for the database, and never fails for it: one that could not be kept says so itself
(`store` is false), is counted, and cannot be gone on from.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, TypeVar

from prometheus_client import Counter
from pydantic import TypeAdapter

import db.responses
from db.database import Database
from db.errors import DatabaseAway, DbError, InvalidValue, NotFound
from db.rows import ResponseRow
from lora.background import BackgroundThreads
from serve.errors import InvalidField, PreviousResponseNotFound, ResponseNotFound
from serve.ids import bare_id
from serve.protocol.response_items import Item, ItemReference

THREADS = 4
KEEP_S = 2.0
"""How long an answer waits to be kept, in seconds."""
PAUSE_S = 1.0
"""How long nothing is tried after the database was found away, so that answers do not queue up for it."""

T = TypeVar("T")

logger = logging.getLogger(__name__)

_ITEM_ID = re.compile(r"[a-z]+_([0-9a-f]{32})[0-9a-f]{4}")
"""The id of an item (serve.answers.responses.item_id), with that of its request."""

_ITEMS: TypeAdapter[list[Item]] = TypeAdapter(list[Item])


class KeptResponses:
    """Of one gateway. not_kept counts answers that were to be kept and were not. For one event loop."""

    def __init__(self, database: Database, not_kept: Counter) -> None:
        self._database = database
        self._not_kept = not_kept
        self._threads = BackgroundThreads(THREADS, "responses")
        self._away_until = 0.0

    async def keep(self, row: ResponseRow) -> bool:
        """Whether the answer is kept."""
        if monotonic() < self._away_until:
            self._not_kept.inc()
            return False
        try:
            async with asyncio.timeout(KEEP_S):
                await self._threads.run(lambda: db.responses.insert(self._database, row))
        except (DbError, TimeoutError) as error:
            if isinstance(error, DatabaseAway | TimeoutError):
                self._away_until = monotonic() + PAUSE_S
            self._not_kept.inc()
            reason = str(error) or type(error).__name__
            logger.warning("answer not kept: %s", reason, extra={"action": "response_not_kept"})
            return False
        return True

    async def history(self, tenant: str, response_id: str) -> list[Item]:
        """All items up to the end of a kept answer, oldest first.

        Raises PreviousResponseNotFound, InvalidField for a conversation that is too long, DatabaseAway.
        """
        try:
            request_id = _request_id(response_id)
            turns = await self._asked(lambda: db.responses.chain(self._database, tenant, request_id))
        except NotFound as error:
            raise PreviousResponseNotFound(response_id, str(error)) from error
        except InvalidValue as error:
            raise InvalidField(f"previous_response_id: {error}", "previous_response_id") from error
        items = [item for turn in turns for item in (*turn.input_items, *turn.output_items)]
        return read_items(items)

    async def resolved(self, tenant: str, items: Sequence[Item | ItemReference]) -> list[Item]:
        """The items with those in the place of references that they mean.

        Raises InvalidField for one that means nothing, DatabaseAway.
        """
        wanted = [item.id for item in items if isinstance(item, ItemReference)]
        if not wanted:
            return [item for item in items if not isinstance(item, ItemReference)]
        requests = sorted({found[1] for each in wanted if (found := _ITEM_ID.fullmatch(each))})
        rows = await self._asked(lambda: db.responses.items(self._database, tenant, requests))
        kept = {item["id"]: item for item in rows if item["id"] in wanted}
        for each in wanted:
            if each not in kept:
                raise InvalidField(f"Item with id '{each}' not found.", "input")
        return [read_items([kept[item.id]])[0] if isinstance(item, ItemReference) else item for item in items]

    async def get(self, tenant: str, response_id: str) -> ResponseRow:
        """A kept answer. Raises ResponseNotFound or DatabaseAway."""
        try:
            request_id = _request_id(response_id)
            return await self._asked(lambda: db.responses.get(self._database, tenant, request_id))
        except NotFound as error:
            raise ResponseNotFound(response_id) from error

    async def delete(self, tenant: str, response_id: str) -> None:
        """Forget an answer. Raises ResponseNotFound or DatabaseAway."""
        try:
            request_id = _request_id(response_id)
        except NotFound as error:
            raise ResponseNotFound(response_id) from error
        if not await self._asked(lambda: db.responses.delete(self._database, tenant, request_id)):
            raise ResponseNotFound(response_id)

    def close(self) -> None:
        """No request is under way."""
        self._threads.close()

    async def _asked(self, work: Callable[[], T]) -> T:
        return await self._threads.run(work)


def read_items(items: Sequence[Mapping[str, Any]]) -> list[Item]:
    """Kept items as they are handed in."""
    return _ITEMS.validate_python(list(items))


def _request_id(response_id: str) -> str:
    """Raises NotFound for what is no answer's id."""
    try:
        return bare_id(response_id)
    except ValueError as error:
        raise NotFound("it is no answer's id") from error
