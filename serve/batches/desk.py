"""Where batches come in: takes those that nobody works on, holds their leases, and lets go of what it lost.

Any number of gateways have one of these. It knows no lines and no answers.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from functools import partial

import db.batches
from db.database import Database
from db.errors import DatabaseAway, DbError, LeaseLost
from db.rows import BatchRow
from lora.errors import StoreUnavailable
from serve.batches.run import BatchRun, Tools
from serve.following import Following

MAX_RUNS = 8
"""Batches that one gateway works on at once; they share its places for requests."""
LOOK_S = 2.0
LEASE_S = 10.0
RENEW_S = 3.0
AGAIN_S = 5.0
"""How long a batch rests that could not go on because the store or the database was away."""
BROKEN_S = 60.0
"""The same after an error that nobody expected."""

Lease = tuple[str, int]
"""Of a batch, by number: a gateway that lost one may take the batch again before it has noticed."""

logger = logging.getLogger(__name__)


class Desk(Following):
    """For one event loop."""

    def __init__(self, database: Database, tools: Tools) -> None:
        self._database = database
        self._tools = tools
        self._runs: dict[Lease, tuple[BatchRun, asyncio.Task[None]]] = {}
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """There is a new batch: look at once."""
        self._woken.set()

    def cancel(self, batch_id: str) -> None:
        """A batch is being cancelled; where another gateway works on it, that one learns it by itself."""
        for lease, (run, _) in self._runs.items():
            if lease[0] == batch_id:
                run.stop()

    async def close(self) -> None:
        """Stop at once; what is under way runs again elsewhere, which may begin without delay."""
        await super().close()
        tasks = [task for _, task in self._runs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._take()
            except DbError as error:
                logger.warning("no batches taken: %s", error, extra={"action": "batches_wait"})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._woken.wait()

    async def _take(self) -> None:
        while len(self._runs) < MAX_RUNS:
            row = await asyncio.to_thread(db.batches.claim, self._database, LEASE_S)
            if row is None:
                return
            run = BatchRun(row, self._tools)
            task = asyncio.get_running_loop().create_task(self._hold(row, run))
            lease = (row.id, row.lease_no)
            self._runs[lease] = (run, task)
            task.add_done_callback(partial(self._gone, lease))

    def _gone(self, lease: Lease, task: asyncio.Task[None]) -> None:
        del self._runs[lease]
        self.wake()

    async def _hold(self, row: BatchRow, run: BatchRun) -> None:
        """One batch, to its end or until something is in the way; the lease ends with it."""
        again_s = 0.0
        try:
            async with asyncio.TaskGroup() as group:
                holding = group.create_task(self._renew(row, run))
                await run.run()
                holding.cancel()
        except* LeaseLost as error:
            logger.warning("batch let go: %s", _cause(error), extra={"action": "batch_lost"})
        except* (DatabaseAway, StoreUnavailable) as error:
            again_s = AGAIN_S
            logger.warning("batch %s waits: %s", row.id, _cause(error), extra={"action": "batch_waits"})
        except* Exception as error:  # one batch must not end the others: it is told, and tried again later
            again_s = BROKEN_S
            logger.error("batch %s failed", row.id, exc_info=error, extra={"action": "batch_failed"})
        finally:
            await _quietly(self._release(row, again_s))

    async def _renew(self, row: BatchRow, run: BatchRun) -> None:
        """Hold the lease, and hear that the batch is being cancelled. Raises LeaseLost."""
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                now = await asyncio.to_thread(db.batches.renew, self._database, row.id, row.lease_no, LEASE_S)
            except DatabaseAway:
                continue  # nobody else can take it either
            if now.status == "cancelling":
                run.stop()

    async def _release(self, row: BatchRow, seconds: float) -> None:
        await asyncio.to_thread(db.batches.renew, self._database, row.id, row.lease_no, seconds)


def _cause(error: BaseException) -> BaseException:
    """The first error itself, out of whatever groups it is in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _quietly(work: Awaitable[None]) -> None:
    with contextlib.suppress(DbError):  # then the lease runs out by itself
        await work
