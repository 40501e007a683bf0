"""What a replica works with: engine, adapters, and the worker between them. Alone in serve it loads torch.

Who frees what: the parts are closed by the replica that had them made.
"""

import asyncio
import dataclasses
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from engine.async_engine import AsyncEngine
from engine.base_tensors import BaseTensors
from engine.config import EngineConfig
from engine.embedding import Embedder
from engine.embedding_engine import EmbeddingEngine
from engine.embeddingspec import read_text_model
from engine.memory import adapter_budget
from engine.records import EngineStats, TokenEvent
from lora.format import base_digest
from lora.loader import AdapterLoader, BaseModel
from lora.local_disk import LocalDisk
from lora.residency import Residency
from lora.store import open_store
from serve.config import AppConfig, ModelConfig
from serve.embedding_worker import EmbeddingWorker
from serve.inspector import Inspector
from serve.link import LinkServer
from serve.vector_inspector import VectorInspector
from serve.worker import Worker

SWITCH_S = 0.0005
"""After that long another thread may have the interpreter: a step asks for it several times, and with
Python's own 5 ms a thread that prepares an adapter would lengthen it each time."""


class ReplicaEngine(Protocol):
    """What a replica does with its engine itself, whatever that makes."""

    @property
    def healthy(self) -> bool: ...

    @property
    def max_model_len(self) -> int: ...

    def stats(self) -> EngineStats: ...

    async def start(self) -> None: ...

    async def close(self, timeout_s: float) -> None: ...


class ReplicaWorker(Protocol):
    """What a replica does with its worker itself."""

    def adapters(self) -> Mapping[str, Mapping[str, Any]]: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """The engine is not started, the server does not listen yet."""

    engine: ReplicaEngine
    residency: Residency
    worker: ReplicaWorker
    server: LinkServer


async def furnish(config: AppConfig, model: ModelConfig, token: str) -> Parts:
    """The parts of one replica of `model`; token: the secret of the data plane."""
    settings = _with_threads(model.engine)
    sys.setswitchinterval(SWITCH_S)
    loader = await asyncio.to_thread(_loader, config, model)
    make = _embedding if model.task == "embed" else _generating
    return make(model, settings, loader, token)


def _generating(model: ModelConfig, settings: EngineConfig, loader: AdapterLoader, token: str) -> Parts:
    worker: Worker
    inspector: Inspector

    def sink(events: list[TokenEvent]) -> None:
        worker.sink(inspector.take(events))

    engine = AsyncEngine(settings, sink)
    residency = Residency(engine, loader, budget=_budget(model))
    inspector = Inspector(engine, loader, model=model.folder, dtype=settings.dtype)
    worker = Worker(engine, residency, inspector)
    worker.server = LinkServer(worker, token)
    return Parts(engine, residency, worker, worker.server)


def _embedding(model: ModelConfig, settings: EngineConfig, loader: AdapterLoader, token: str) -> Parts:
    def make_embedder() -> Embedder:
        return Embedder(
            model.folder,
            dtype=settings.dtype,
            pooling=model.pooling,
            normalize=model.normalize,
            max_tokens=settings.max_model_len,
            max_rank=settings.max_lora_rank,
        )

    engine = EmbeddingEngine(settings, make_embedder)
    residency = Residency(engine, loader, budget=_budget(model))
    worker = EmbeddingWorker(engine, residency, VectorInspector(engine, loader, model=model.name))
    return Parts(engine, residency, worker, LinkServer(worker, token))


def _budget(model: ModelConfig) -> int:
    return adapter_budget(model.engine, read_text_model(model.folder))


def _with_threads(engine: EngineConfig) -> EngineConfig:
    """Ray limits OpenMP to one thread in each worker: without a number of our own take all cores."""
    if engine.threads is not None:
        return engine
    return dataclasses.replace(engine, threads=len(os.sched_getaffinity(0)))


def _loader(config: AppConfig, model: ModelConfig) -> AdapterLoader:
    """Reads and hashes the base model's files, so a thread calls it."""
    base = BaseModel(
        targets=read_text_model(model.folder).adapter_targets,
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
