"""Many more adapters than there is room for, one after another: nothing grows but what a budget allows."""

import asyncio
import gc
import threading
from pathlib import Path

import torch

from bench.adapters import write_adapter
from engine.adapter_weights import AdapterWeights
from engine.async_engine import AsyncEngine
from engine.base_tensors import BaseTensors
from engine.config import EngineConfig
from engine.modelspec import ModelSpec, read_spec
from engine.records import Request, SamplingParams, TokenEvent
from lora.folders import is_complete, publish, staging_folder
from lora.loader import AdapterLoader, BaseModel
from lora.local_disk import LocalDisk
from lora.ports import Stored
from lora.residency import Residency
from lora.store import local_folder
from tests.unit.lora.fakes import SIZE, FakeEngine

SLOTS = 8
THREADS = 6
"""Four that fetch, one that prepares, one that steps; they come as they are needed."""


class Fit:
    """Any adapter; keeps no account of who asked."""

    nbytes = SIZE

    def __init__(self, digest: str) -> None:
        self.digest = digest

    def read(self) -> AdapterWeights:
        return AdapterWeights(self.digest, {})


class Source:
    def fit(self, digest: str, *, force: bool) -> Fit:
        return Fit(digest)

    def forget(self, digest: str) -> None:
        pass

    def copies(self) -> dict[str, Stored]:
        return {}


async def test_a_thousand_adapters_in_turn_leave_no_trace() -> None:
    engine, threads = FakeEngine(), threading.active_count()
    residency = Residency(engine, Source(), budget=SLOTS * SIZE)
    sizes = []
    for number in range(1000):
        residency.release(await residency.acquire(f"a{number}"))
        residency.check_integrity()
        assert len(residency.snapshot()) <= SLOTS
        assert engine.bytes <= SLOTS * SIZE
        if number % 250 == 249:
            engine.adds.clear()
            gc.collect()
            sizes.append((len(gc.get_objects()), len(asyncio.all_tasks())))
    objects, tasks = zip(*sizes[1:], strict=True)
    assert max(objects) - min(objects) < 100
    assert len(set(tasks)) == 1
    assert threading.active_count() <= threads + THREADS
    await residency.close()


async def test_hundreds_of_adapters_at_once_are_all_served() -> None:
    engine = FakeEngine()
    residency = Residency(engine, Source(), budget=SLOTS * SIZE)
    served = []

    async def use(number: int) -> None:
        pin = await residency.acquire(f"a{number}")
        assert engine.bytes <= SLOTS * SIZE
        served.append(number)
        await asyncio.sleep(0)
        residency.release(pin)

    await asyncio.gather(*(use(number) for number in range(300)))
    assert sorted(served) == list(range(300))
    residency.check_integrity()
    await residency.close()


class Store:
    """Makes the adapter that a digest ends with the number of. Nothing else of a store is needed here."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec

    def fetch(self, digest: str, into: Path) -> Path:
        target = local_folder(digest, into)
        if not is_complete(target):
            with staging_folder(into) as staged:
                write_adapter(staged, "tiny", self._spec, 4, int(digest[-3:]))
                publish(staged, target, durable=False)
        return target


class Served:
    """The reference engine on a tiny model, fed through a small disk and a small memory."""

    def __init__(self, root: Path, model: Path) -> None:
        spec = read_spec(model)
        self.digests = [f"sha256:{number:064}" for number in range(100)]
        self.disk = LocalDisk(Store(spec), root, 300_000)  # type: ignore[arg-type]  # a stand-in
        base = BaseModel(
            targets=spec.adapter_targets,
            tensors=BaseTensors(model),
            digest="sha256:" + "b" * 64,
            names=("tiny",),
        )
        self.loader = AdapterLoader(self.disk, base, max_rank=4, dtype=torch.float32)
        self.budget = 10 * self.loader.fit(self.digests[0]).nbytes
        config = EngineConfig(
            model=model,
            dtype="float32",
            backend="reference",
            num_blocks=32,
            adapter_slots=SLOTS,
            max_lora_rank=4,
            adapter_bytes=self.budget,
        )
        self.engine = AsyncEngine(config, self._take)
        self.residency = Residency(self.engine, self.loader, budget=self.budget)
        self._ended: dict[str, asyncio.Future[None]] = {}

    def _take(self, events: list[TokenEvent]) -> None:
        for event in events:
            assert event.error is None, event.error
            if event.finish is not None:
                self._ended.pop(event.request_id).set_result(None)

    async def use(self, digest: str) -> None:
        pin = await self.residency.acquire(digest)
        ended = self._ended[digest] = asyncio.get_running_loop().create_future()
        await self.engine.add(Request(digest, (1, 2, 3), SamplingParams(max_tokens=2), digest))
        await ended
        self.residency.release(pin)

    def disk_bytes(self) -> int:
        return sum(copy.bytes for copy in self.disk.copies().values())

    def figures(self) -> tuple[int, int]:
        """Tensors and tasks there are."""
        gc.collect()
        tensors = sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects())
        return tensors, len(asyncio.all_tasks())


async def test_a_hundred_real_adapters_in_turn_stay_within_memory_disk_and_slots(
    tmp_path: Path, tiny_model: Path
) -> None:
    served, threads = Served(tmp_path, tiny_model), threading.active_count()
    await served.engine.start()
    figures = []
    for number, digest in enumerate(served.digests):
        await served.use(digest)
        held = served.engine.adapters()
        assert sum(info.bytes for info in held.values()) <= served.budget
        assert 200_000 * (number > 20) <= served.disk_bytes() <= 300_000
        if number in (49, 99):
            figures.append(served.figures())
    assert figures[0] == figures[1]
    assert threading.active_count() <= threads + THREADS
    assert len(served.residency.snapshot()) == 10
    for digest in served.digests:
        await served.residency.unload(digest)
    assert served.engine.adapters() == {}
    assert await served.residency.listing() == []
    await served.engine.close()
    await served.residency.close()
