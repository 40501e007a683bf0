"""Texts of many requests to vectors, for asyncio: passes are formed on the loop and computed on one thread.

What belongs to requests is touched on the loop alone, the model on its thread alone. Requests for another
adapter than the one at work take their turn in order of arrival.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import torch

from engine.config import EngineConfig
from engine.embedding import Embedder
from engine.errors import EmbeddingFailed, EngineClosed, UnknownAdapter
from engine.pass_figures import PassFigures
from engine.records import AdapterInfo, EngineStats
from engine.text_adapter import TextAdapter
from engine.text_queue import Item, Order, TextQueue

if TYPE_CHECKING:
    from engine.adapter_weights import AdapterWeights
    from engine.ports import PreparedAdapter

UNHEALTHY_AFTER = 3
"""Passes that failed in a row."""

MakeEmbedder = Callable[[], Embedder]


@dataclass(frozen=True, slots=True)
class _Made:
    """What became of an item: the bytes of its vector, or why there is none."""

    item: Item[TextAdapter | None]
    outcome: bytes | Exception

    @property
    def broken(self) -> bool:
        """Whether the model failed, not only this text or its adapter."""
        return isinstance(self.outcome, Exception) and not isinstance(self.outcome, EmbeddingFailed)


class EmbeddingEngine:
    """One model that embeds. Everything but prepare_adapter is called on the loop that called start()."""

    def __init__(self, config: EngineConfig, make_embedder: MakeEmbedder) -> None:
        """config: its max_batched_tokens bound a pass, its max_waiting the texts that wait.

        make_embedder: called on the thread.
        """
        self._config = config
        self._make_embedder = make_embedder
        self._queue: TextQueue[TextAdapter | None] = TextQueue(config.max_waiting)
        self._waiters: dict[int, asyncio.Future[bytes]] = {}
        self._adapters: dict[str, TextAdapter] = {}
        self._figures = PassFigures()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedding")
        self._wake = asyncio.Event()
        self._embedder: Embedder | None = None
        self._turning: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """Load the model; returns when it serves. Raises what loading it raises."""
        loop = asyncio.get_running_loop()
        self._embedder = await loop.run_in_executor(self._thread, self._load)
        self._turning = loop.create_task(self._turn_for_ever(self._embedder))

    async def close(self, timeout_s: float = 30.0) -> None:
        """Take no more requests, finish those taken in; after so many seconds give the others up."""
        self._closed = True
        if self._turning is not None:
            self._wake.set()
            await asyncio.wait({self._turning}, timeout=timeout_s)
            self._turning.cancel()
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_exception(EngineClosed("the engine was closed before the text's turn came"))
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def embed(
        self, texts: Sequence[Sequence[int]], adapter: str | None = None, dimensions: int | None = None
    ) -> bytes:
        """Vectors of `texts`, one after another: float32 [n, dimensions], little-endian.

        Cancelled, its texts whose turn has not come are dropped. Raises what Embedder.check raises,
        UnknownAdapter, QueueFull, EmbeddingFailed and EngineClosed.
        """
        if self._embedder is None or self._closed:
            raise EngineClosed("the engine is not started, or closed; it takes no texts")
        if adapter is not None and adapter not in self._adapters:
            raise UnknownAdapter(adapter, self._adapters)
        for text in texts:
            self._embedder.check(text, dimensions)
        order = Order(texts, None if adapter is None else self._adapters[adapter], dimensions)
        if not texts:
            return b""
        self._queue.put(order)
        waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiters[id(order)] = waiter
        self._wake.set()
        try:
            return await waiter
        finally:
            self._queue.drop(order)
            del self._waiters[id(order)]

    def prepare_adapter(self, weights: AdapterWeights) -> TextAdapter:
        """See Embedder; any thread, which it keeps busy. Raises EngineClosed before start()."""
        if self._embedder is None:
            raise EngineClosed("the engine is not started; it prepares no adapters")
        return self._embedder.prepare_adapter(weights)

    async def add_adapter(self, prepared: PreparedAdapter) -> None:
        """Texts may name it from now on. Raises ValueError for one of another backend."""
        if not isinstance(prepared, TextAdapter):
            raise ValueError(f"adapter {prepared.digest!r} was prepared by another backend")
        self._adapters[prepared.digest] = prepared

    async def remove_adapter(self, digest: str) -> int:
        """Let go of an adapter; returns its bytes, freed once no pass has it. Raises UnknownAdapter."""
        if digest not in self._adapters:
            raise UnknownAdapter(digest, self._adapters)
        return self._adapters.pop(digest).nbytes

    def adapters(self) -> dict[str, AdapterInfo]:
        """Added adapters; none ever has a slot."""
        return {digest: AdapterInfo(digest, None, made.nbytes, 0) for digest, made in self._adapters.items()}

    def stats(self) -> EngineStats:
        """Figures of this moment: requests are texts, steps are passes."""
        return self._figures.stats(waiting=len(self._queue), adapters=len(self._adapters))

    @property
    def max_model_len(self) -> int:
        """Most tokens of a text; 0 before start()."""
        return 0 if self._embedder is None else self._embedder.max_tokens

    @property
    def healthy(self) -> bool:
        """Started, not closed, and not failing pass after pass."""
        alive = self._turning is not None and not self._turning.done()
        return alive and self._figures.consecutive_failures < UNHEALTHY_AFTER

    def _load(self) -> Embedder:
        if self._config.threads is not None:
            torch.set_num_threads(self._config.threads)
        return self._make_embedder()

    async def _turn_for_ever(self, embedder: Embedder) -> None:
        loop = asyncio.get_running_loop()
        while not self._closed or len(self._queue):
            items = self._queue.take(self._config.max_batched_tokens)
            if not items:
                self._wake.clear()
                await self._wake.wait()
                continue
            self._figures.begin(len(items), sum(len(item.text) for item in items))
            made = await loop.run_in_executor(self._thread, _compute, embedder, items)
            self._figures.end(failed=any(each.broken for each in made))
            for each in made:
                self._deliver(each)

    def _deliver(self, made: _Made) -> None:
        """Whoever waits for an order gets its vectors with the last one, or its first failure."""
        order = made.item.order
        waiter = self._waiters.get(id(order))
        if waiter is None or waiter.done():
            return
        if isinstance(made.outcome, Exception):
            self._queue.drop(order)
            waiter.set_exception(made.outcome)
            return
        order.vectors[made.item.place] = made.outcome
        if len(order.vectors) == len(order.texts):
            waiter.set_result(b"".join(order.vectors[place] for place in range(len(order.texts))))


def _compute(embedder: Embedder, items: Sequence[Item[TextAdapter | None]]) -> list[_Made]:
    """One pass. If it fails each order is tried alone, so that none fails for another's sake."""
    try:
        vectors = embedder.pooled([item.text for item in items], items[0].order.adapter)
    except Exception as error:  # out of memory, a bug: whatever it was, the thread goes on
        orders = [list(some) for _, some in groupby(items, key=lambda item: id(item.order))]
        if len(orders) == 1:
            return [_Made(item, error) for item in items]
        return [made for some in orders for made in _compute(embedder, some)]
    return [_shaped(embedder, item, vector) for item, vector in zip(items, vectors, strict=True)]


def _shaped(embedder: Embedder, item: Item[TextAdapter | None], vector: torch.Tensor) -> _Made:
    try:
        made = embedder.shaped(vector, item.order.dimensions)
        return _Made(item, made.numpy().astype("<f4").tobytes())
    except EmbeddingFailed as error:
        return _Made(item, error)
