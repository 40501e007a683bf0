"""The deployment of one base model: an engine, its adapters, and a listener for the gateways.

One process is one replica. It tells the directory every two seconds where it listens and how it fares.
Adapters come on demand: a replica that starts anew loads each when the first request for it arrives.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
from typing import Any
from uuid import uuid4

import ray
import torch

from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.modelspec import read_spec
from lora.format import base_digest
from lora.loader import AdapterLoader, BaseModel
from lora.residency import Residency
from lora.store import FileStore
from serve.config import AppConfig, ModelConfig
from serve.directory import REPORT_EVERY_S, ReplicaReport
from serve.link import LinkServer
from serve.worker import Worker

GOODBYE_S = 0.5

logger = logging.getLogger(__name__)


class EngineReplica:
    """Ray Serve builds one of these in each replica's process."""

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits a constructor that is a coroutine
        self, config: AppConfig, model_name: str, token: str, directory: Any
    ) -> None:
        self._config = config
        self._model = config.model(model_name)
        self._settings = _with_threads(self._model.engine)
        self._id = f"{model_name}-{uuid4().hex[:8]}"
        self._directory = directory
        self._engine = AsyncEngine(self._settings, self._events)
        self._residency = Residency(
            self._engine,
            await asyncio.to_thread(_loader, config, self._model),
            num_slots=self._settings.adapter_slots,
            host_bytes=config.host_cache_bytes,
        )
        self._worker = Worker(self._engine, self._residency)
        self._server = LinkServer(self._worker, token)
        self._worker.server = self._server
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

    def _events(self, events: list[Any]) -> None:
        self._worker.sink(events)

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
            adapter_slots=self._settings.adapter_slots,
            healthy=self._engine.healthy,
            stats=self._engine.stats(),
            adapters=self._worker.adapters(),
        )


def _with_threads(engine: EngineConfig) -> EngineConfig:
    """Ray limits OpenMP to one thread in each worker: without a number of our own take all cores."""
    if engine.threads is not None:
        return engine
    return dataclasses.replace(engine, threads=len(os.sched_getaffinity(0)))


def _loader(config: AppConfig, model: ModelConfig) -> AdapterLoader:
    """Reads and hashes the base model's files, so a thread calls it."""
    base = BaseModel(
        targets=read_spec(model.folder).lora_targets,
        digest=base_digest(model.folder),
        names=(model.name, str(model.folder), *model.aliases),
    )
    return AdapterLoader(
        FileStore(config.store_root),
        config.cache_root / "adapters",
        base,
        max_rank=model.engine.max_lora_rank,
        dtype=getattr(torch, model.engine.dtype),
    )
