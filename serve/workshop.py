"""What a replica works with: engine, adapters, and the worker between them. Alone in serve it loads torch.

Who frees what: the parts are closed by the replica that had them made.
"""

import asyncio
import dataclasses
import os
import sys
from dataclasses import dataclass

import torch

from engine.async_engine import AsyncEngine
from engine.base_tensors import BaseTensors
from engine.config import EngineConfig
from engine.memory import adapter_budget
from engine.modelspec import read_spec
from engine.records import TokenEvent
from lora.format import base_digest
from lora.loader import AdapterLoader, BaseModel
from lora.local_disk import LocalDisk
from lora.residency import Residency
from lora.store import open_store
from serve.config import AppConfig, ModelConfig
from serve.inspector import Inspector
from serve.worker import Worker

SWITCH_S = 0.0005
"""After that long another thread may have the interpreter: a step asks for it several times, and with
Python's own 5 ms a thread that prepares an adapter would lengthen it each time."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The engine is not started, the worker has no server yet."""

    engine: AsyncEngine
    residency: Residency
    worker: Worker


async def furnish(config: AppConfig, model: ModelConfig) -> Parts:
    """The parts of one replica of `model`."""
    settings = _with_threads(model.engine)
    sys.setswitchinterval(SWITCH_S)
    worker: Worker
    inspector: Inspector

    def sink(events: list[TokenEvent]) -> None:
        worker.sink(inspector.take(events))

    engine = AsyncEngine(settings, sink)
    loader = await asyncio.to_thread(_loader, config, model)
    residency = Residency(engine, loader, budget=adapter_budget(settings, read_spec(model.folder)))
    inspector = Inspector(engine, loader, model=model.folder, dtype=settings.dtype)
    worker = Worker(engine, residency, inspector)
    return Parts(engine, residency, worker)


def _with_threads(engine: EngineConfig) -> EngineConfig:
    """Ray limits OpenMP to one thread in each worker: without a number of our own take all cores."""
    if engine.threads is not None:
        return engine
    return dataclasses.replace(engine, threads=len(os.sched_getaffinity(0)))


def _loader(config: AppConfig, model: ModelConfig) -> AdapterLoader:
    """Reads and hashes the base model's files, so a thread calls it."""
    base = BaseModel(
        targets=read_spec(model.folder).adapter_targets,
        tensors=BaseTensors(model.folder),
        digest=base_digest(model.folder),
        names=model.base_names,
    )
    store = open_store(config.store_url, config.s3)
    disk = LocalDisk(store, config.cache_root / "adapters", config.adapter_disk_bytes)
    disk.trim()
    return AdapterLoader(
        disk,
        base,
        max_rank=model.engine.max_lora_rank,
        dtype=getattr(torch, model.engine.dtype),
    )
