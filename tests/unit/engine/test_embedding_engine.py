"""Texts of many requests on one thread: what each gets, who is refused, what is dropped, what fails alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from engine.config import EngineConfig
from engine.embedding_engine import UNHEALTHY_AFTER, EmbeddingEngine
from engine.errors import (
    EmbeddingFailed,
    EngineClosed,
    InvalidParameter,
    PromptTooLong,
    QueueFull,
    UnknownAdapter,
)

MANY = 1000


class Model:
    """Answers each text with its ids, and waits for `gate`. An id of 13 breaks a pass, 66 is infinite."""

    dim, max_tokens, vocab_size = 2, 8, 100

    def __init__(self) -> None:
        self.passes: list[list[list[int]]] = []
        self.gate = threading.Event()
        self.gate.set()

    def check(self, text: Sequence[int], dimensions: int | None) -> None:
        if len(text) > self.max_tokens:
            raise PromptTooLong(len(text), self.max_tokens)
        if dimensions is not None and dimensions > self.dim:
            raise InvalidParameter("dimensions", dimensions, f"1 to {self.dim}")

    def pooled(self, texts: Sequence[Sequence[int]], adapter: Any) -> list[torch.Tensor]:
        self.passes.append([list(text) for text in texts])
        assert self.gate.wait(10)
        if any(13 in text for text in texts):
            raise RuntimeError("thirteen")
        return [torch.tensor([float(text[0]), float(len(text))]) for text in texts]

    def shaped(self, vector: torch.Tensor, dimensions: int | None) -> torch.Tensor:
        if vector[0] == 66:
            raise EmbeddingFailed
        return vector[:dimensions]


class Bench:
    def __init__(self, tokens: int = 100, waiting: int = MANY) -> None:
        self.model = Model()
        config = EngineConfig(
            model=Path(), max_num_seqs=1, max_batched_tokens=tokens, max_waiting=waiting, threads=1
        )
        self.engine = EmbeddingEngine(config, lambda: cast(Any, self.model))

    async def __aenter__(self) -> Bench:
        await self.engine.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.model.gate.set()
        await self.engine.close(5)

    async def embed(self, *texts: list[int], **options: Any) -> list[list[float]]:
        found = torch.frombuffer(bytearray(await self.engine.embed(texts, **options)), dtype=torch.float32)
        rows: list[list[float]] = found.view(len(texts), -1).tolist()
        return rows

    async def until(self, check: Any) -> None:
        async with asyncio.timeout(10):
            while not check():  # noqa: ASYNC110  the model's thread has no event to set
                await asyncio.sleep(0.001)


async def test_vectors_come_in_the_order_of_the_texts() -> None:
    async with Bench(tokens=3) as bench:
        assert await bench.embed([1, 1], [2], [3, 3, 3], [4]) == [[1, 2], [2, 1], [3, 3], [4, 1]]
        assert bench.model.passes == [[[1, 1], [2]], [[3, 3, 3]], [[4]]]
        assert await bench.embed([5, 5], dimensions=1) == [[5]]
        assert await bench.engine.embed([]) == b""


async def test_requests_that_wait_share_a_pass() -> None:
    async with Bench() as bench:
        bench.model.gate.clear()
        first = asyncio.create_task(bench.embed([1]))
        await bench.until(lambda: bench.model.passes)
        others = [asyncio.create_task(bench.embed([number], [number])) for number in (2, 3)]
        await bench.until(lambda: bench.engine.stats().waiting == 4)
        assert bench.engine.stats().running == 1
        bench.model.gate.set()
        assert [await task for task in (first, *others)] == [[[1, 1]], [[2, 1]] * 2, [[3, 1]] * 2]
        assert bench.model.passes[1:] == [[[2], [2], [3], [3]]]
        stats = bench.engine.stats()
        assert (stats.running, stats.waiting, stats.steps, stats.prompt_tokens) == (0, 0, 2, 5)


async def test_texts_of_a_client_who_left_are_not_computed() -> None:
    async with Bench(tokens=1) as bench:
        bench.model.gate.clear()
        running = asyncio.create_task(bench.embed([1], [2]))
        await bench.until(lambda: bench.model.passes)
        waiting = asyncio.create_task(bench.embed([3]))
        await bench.until(lambda: bench.engine.stats().waiting == 2)
        for task in (running, waiting):
            task.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        bench.model.gate.set()
        assert await bench.embed([4]) == [[4, 1]]
        assert bench.model.passes == [[[1]], [[4]]]


async def test_a_full_queue_refuses() -> None:
    async with Bench(tokens=1, waiting=2) as bench:
        bench.model.gate.clear()
        tasks = [asyncio.create_task(bench.embed([1], [2], [3]))]
        await bench.until(lambda: bench.engine.stats().waiting == 2)
        with pytest.raises(QueueFull):
            await bench.embed([9])
        bench.model.gate.set()
        assert await tasks[0] == [[1, 1], [2, 1], [3, 1]]
        assert await bench.embed([9]) == [[9, 1]]


async def test_a_text_that_breaks_a_pass_fails_its_own_request_alone() -> None:
    async with Bench() as bench:
        bench.model.gate.clear()
        blocker = asyncio.create_task(bench.embed([1]))
        await bench.until(lambda: bench.model.passes)
        tasks = [asyncio.create_task(bench.embed([number])) for number in (2, 13, 4)]
        await bench.until(lambda: bench.engine.stats().waiting == 3)
        bench.model.gate.set()
        answers = await asyncio.gather(blocker, *tasks, return_exceptions=True)
        assert [answers[0], answers[1], answers[3]] == [[[1, 1]], [[2, 1]], [[4, 1]]]
        assert isinstance(answers[2], RuntimeError)
        assert bench.engine.healthy


async def test_failures_in_a_row_make_it_unhealthy_and_a_vector_of_nothing_does_not() -> None:
    async with Bench() as bench:
        for _ in range(UNHEALTHY_AFTER):
            with pytest.raises(EmbeddingFailed):
                await bench.embed([66])
        assert bench.engine.healthy
        for _ in range(UNHEALTHY_AFTER):
            with pytest.raises(RuntimeError):
                await bench.embed([13])
        assert not bench.engine.healthy
        await bench.embed([1])
        assert bench.engine.healthy


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        ([1] * 9, {}, PromptTooLong),
        ([1], {"dimensions": 3}, InvalidParameter),
        ([1], {"adapter": "nobody"}, UnknownAdapter),
    ],
)
async def test_what_cannot_be_embedded_is_refused(
    text: list[int], options: dict[str, Any], error: type[Exception]
) -> None:
    async with Bench() as bench:
        with pytest.raises(error):
            await bench.embed([1], text, **options)
        assert bench.model.passes == []


async def test_closing_finishes_what_was_taken_in_and_takes_nothing_more() -> None:
    bench = Bench(tokens=1)
    with pytest.raises(EngineClosed):
        await bench.embed([1])
    async with bench:
        bench.model.gate.clear()
        task = asyncio.create_task(bench.embed([1], [2]))
        await bench.until(lambda: bench.model.passes)
        closing = asyncio.create_task(bench.engine.close(10))
        await asyncio.sleep(0)
        with pytest.raises(EngineClosed):
            await bench.embed([3])
        bench.model.gate.set()
        assert await task == [[1, 1], [2, 1]]
        await closing
        assert not bench.engine.healthy


async def test_closing_in_a_hurry_gives_up_what_waits() -> None:
    async with Bench(tokens=1) as bench:
        bench.model.gate.clear()
        task = asyncio.create_task(bench.embed([1], [2]))
        await bench.until(lambda: bench.model.passes)
        await bench.engine.close(0.0)
        with pytest.raises(EngineClosed):
            await task


async def test_a_model_that_does_not_load_is_told() -> None:
    def make() -> Any:
        raise ValueError("no such folder")

    engine = EmbeddingEngine(EngineConfig(model=Path()), make)
    with pytest.raises(ValueError, match="no such folder"):
        await engine.start()
    assert (engine.max_model_len, engine.healthy) == (0, False)
    await engine.close()
