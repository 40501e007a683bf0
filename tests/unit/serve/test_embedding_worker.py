"""A replica that makes vectors: adapters are held while texts are embedded, and looked at when loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from engine.records import Request, SamplingParams
from lora.errors import IdenticalToBase
from lora.residency import Residency
from serve.embedding_worker import EmbeddingWorker
from serve.errors import LinkProtocolError, WrongTask
from serve.vector_inspector import VectorInspector
from tests.unit.lora.fakes import SIZE, FakeEngine, FakeSource

DIGEST = "sha256:" + "d" * 64


class Engine(FakeEngine):
    """Answers with the adapter's name, unless it is to be like the base."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.called = asyncio.Event()
        self.calls: list[Any] = []
        self.same = False

    async def embed(
        self, texts: Sequence[Sequence[int]], adapter: str | None = None, dimensions: int | None = None
    ) -> bytes:
        self.calls.append((texts, adapter, dimensions))
        self.called.set()
        await self.gate.wait()
        return b"base" if adapter is None or self.same else adapter.encode()


class Loader:
    """What an inspector asks of the adapters' files."""

    def probe_prompts(self, digest: str, lengths: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        return tuple((1,) * length for length in lengths)

    def dropped(self, digest: str) -> tuple[str, ...]:
        return ("head",)

    def reading(self, digest: str) -> AbstractContextManager[Path]:
        raise AssertionError("nothing is read")


class Bench:
    def __init__(self) -> None:
        self.engine = Engine()
        self.residency = Residency(self.engine, FakeSource(), budget=SIZE, patience_s=60)
        inspector = VectorInspector(self.engine, Loader(), model="minis")
        self.worker = EmbeddingWorker(self.engine, self.residency, inspector)

    def pins(self) -> int:
        return sum(row.pins for row in self.residency.snapshot())


async def test_an_adapter_is_held_while_its_texts_are_embedded() -> None:
    bench = Bench()
    bench.engine.gate.clear()
    task = asyncio.create_task(bench.worker.call("embed", [[[1, 2], [3]], DIGEST, True, 8]))
    await bench.engine.called.wait()
    assert bench.pins() == 1
    bench.engine.gate.set()
    assert await task == DIGEST.encode()
    assert (bench.engine.calls, bench.pins()) == ([([[1, 2], [3]], DIGEST, 8)], 0)
    assert await bench.worker.call("embed", [[[4]], None, False, None]) == b"base"
    await bench.residency.close()


async def test_a_call_that_is_given_up_lets_its_adapter_go() -> None:
    bench = Bench()
    bench.engine.gate.clear()
    task = asyncio.create_task(bench.worker.call("embed", [[[1]], DIGEST, False, None]))
    await bench.engine.called.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.pins() == 0
    await bench.residency.close()


async def test_loading_says_what_the_adapter_changes() -> None:
    bench = Bench()
    loaded = await bench.worker.call("load", [DIGEST, False])
    assert loaded["warnings"] == ["tensor head repeats the base's and was dropped"]
    assert bench.worker.adapters().keys() == {DIGEST}
    bench.engine.same = True
    with pytest.raises(IdenticalToBase):
        await bench.worker.call("load", [DIGEST, False])
    forced = await bench.worker.call("load", [DIGEST, True])
    assert forced["warnings"][0].startswith("loaded by force:")
    await bench.worker.close()
    await bench.residency.close()


async def test_what_it_does_not_do_is_refused() -> None:
    bench = Bench()
    with pytest.raises(LinkProtocolError, match="makes vectors"):
        await bench.worker.add(Request("a", (1,), SamplingParams(1)), force=False)
    with pytest.raises(WrongTask, match="task 'embed'"):
        await bench.worker.call("check", [DIGEST, False])
    for args in ([], [[[1]], 3, False, None], [[[1]], None, False]):
        with pytest.raises(LinkProtocolError, match="unknown call 'embed'"):
            await bench.worker.call("embed", args)
    await bench.residency.close()
