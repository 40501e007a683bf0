"""Replicas of the contract tests: all is real but the model and the adapters, which are fakes."""

from __future__ import annotations

import asyncio
from typing import Any

from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake_runner import FakeRunner, fake_engine
from lora.residency import Residency
from serve.directory import Directory, ReplicaReport
from serve.link import LinkServer
from serve.worker import Worker
from tests.contract.model_folder import BASE, MODEL_LEN, SHAPE, VOCABULARY
from tests.unit.lora.fakes import FakeFit, FakeSource

TOKEN = "token"
MAX_WAITING = 64


class FakeLoader(FakeSource):
    """`refusal` is raised for every adapter while it is set."""

    refusal: Exception | None = None

    def fit(self, digest: str, *, force: bool) -> FakeFit:
        if self.refusal is not None:
            raise self.refusal
        return super().fit(digest, force=force)


class FakeInspector:
    """The fake engine knows no logprobs."""

    async def changes(self, digest: str, *, force: bool) -> tuple[str, ...]:
        return ()

    async def check(self, digest: str) -> dict[str, Any]:
        return {"passed": True}


class Replica:
    """A replica without Ray."""

    def __init__(self, settings: EngineConfig, name: str, directory: Directory) -> None:
        self.runner = FakeRunner(num_blocks=256, model_len=MODEL_LEN, vocab_size=SHAPE["vocab_size"])
        self.engine = AsyncEngine(settings, self._events, make_engine=self._make_engine)
        self.loader = FakeLoader()
        self.residency = Residency(self.engine, self.loader, budget=1 << 20)
        self.worker = Worker(self.engine, self.residency, FakeInspector())
        self.server = LinkServer(self.worker, TOKEN)
        self.worker.server = self.server
        self.name = name
        self.port = 0
        self._directory = directory

    async def start(self) -> None:
        await self.engine.start()
        self.port = await self.server.start("127.0.0.1")
        self._task = asyncio.create_task(self._report())

    async def stop(self) -> None:
        self._task.cancel()
        await self.server.close()
        await self.engine.close(0.1)
        await self.worker.close()
        await self.residency.close()

    def _make_engine(self, settings: EngineConfig) -> Engine:
        """Prompts may hold every token; completions are made of readable ones."""
        engine = fake_engine(self.runner, model=settings.model, max_waiting=MAX_WAITING)
        self.runner.vocab_size = VOCABULARY
        return engine

    def _events(self, events: list[Any]) -> None:
        self.worker.sink(events)

    async def _report(self) -> None:
        while True:
            await self._directory.report(
                ReplicaReport(
                    replica=self.name,
                    base_model=BASE,
                    host="127.0.0.1",
                    port=self.port,
                    max_model_len=self.engine.max_model_len,
                    adapter_slots=4,
                    healthy=self.engine.healthy,
                    stats=self.engine.stats(),
                    adapters=self.worker.adapters(),
                )
            )
            await asyncio.sleep(0.05)
