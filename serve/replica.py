"""The deployment of one base model: an engine, its adapters, and a listener for the gateways.

One process is one replica. It tells the directory every two seconds where it listens and how it fares.
Adapters come on demand: a replica that starts anew loads each when the first request for it arrives.
"""

import asyncio
import contextlib
import logging
from typing import Any
from uuid import uuid4

import ray

from serve.config import AppConfig
from serve.directory import REPORT_EVERY_S, ReplicaReport

GOODBYE_S = 0.5

logger = logging.getLogger(__name__)


class EngineReplica:
    """Ray Serve builds one of these in each replica's process."""

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits a constructor that is a coroutine
        self, config: AppConfig, model_name: str, token: str, directory: Any
    ) -> None:
        # Here, not above: whoever only builds the app does without torch, which takes seconds to import.
        from serve.workshop import furnish

        self._config = config
        self._model = config.model(model_name)
        self._id = f"{model_name}-{uuid4().hex[:8]}"
        self._directory = directory
        parts = await furnish(config, self._model, token)
        self._engine, self._residency = parts.engine, parts.residency
        self._worker, self._server = parts.worker, parts.server
        await self._engine.start()
        self._host = ray.util.get_node_ip_address()
        self._port = await self._server.start(self._host)
        self._reporting = asyncio.get_running_loop().create_task(self._report_for_ever())
        logger.info("replica %s listens on %s:%d", self._id, self._host, self._port)

    async def check_health(self) -> None:
        """Called by Ray Serve, which replaces a replica that raises here."""
        if not self._engine.healthy:
            raise RuntimeError(f"the engine of {self._id} fails step after step, or was closed")
        if self._reporting.done():
            raise RuntimeError(f"the reports of {self._id} have ended: {self._reporting.exception()!r}")

    async def __del__(self) -> None:
        """Called by Ray Serve when the replica is stopped in order: finish what runs, take nothing new."""
        self._reporting.cancel()
        await self._say_goodbye()
        await self._engine.close(self._config.drain_s)
        await self._worker.close()
        await self._residency.close()
        await self._server.close()

    async def _say_goodbye(self) -> None:
        """Best effort: the whole app may be stopping, and the directory may have gone first."""
        with contextlib.suppress(TimeoutError, ray.exceptions.RayError):
            async with asyncio.timeout(GOODBYE_S):
                await self._directory.leave.remote(self._id)

    async def _report_for_ever(self) -> None:
        while True:
            try:
                await self._directory.report.remote(self._report())
            except ray.exceptions.RayError as error:
                logger.warning("directory away: %r", error, extra={"action": "directory_away"})
            await asyncio.sleep(REPORT_EVERY_S)

    def _report(self) -> ReplicaReport:
        return ReplicaReport(
            replica=self._id,
            base_model=self._model.name,
            host=self._host,
            port=self._port,
            max_model_len=self._engine.max_model_len,
            adapter_slots=self._model.engine.adapter_slots,
            healthy=self._engine.healthy,
            stats=self._engine.stats(),
            adapters=self._worker.adapters(),
        )
