"""A replica's questions to its own engine about an adapter: does it change anything, is it applied right.

They go the way of every request, one at a time, and their events come back here instead of to a gateway.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from engine.records import Request, TokenEvent, TokenLogprob
from lora.probe import CHANGE_LENGTHS, PROBE, check_changes
from lora.self_check import CHECK_LENGTHS, self_check
from serve.errors import GenerationError


class Answering(Protocol):
    """The part of AsyncEngine that is needed here."""

    async def add(self, request: Request) -> None: ...

    def abort(self, request_id: str) -> None: ...


class AdapterFolder(Protocol):
    """The part of AdapterLoader that is needed here."""

    def probe_prompts(self, digest: str, lengths: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Blocks, and runs on a thread."""

    def dropped(self, digest: str) -> tuple[str, ...]:
        """Blocks, and runs on a thread."""

    def reading(self, digest: str) -> AbstractContextManager[Path]:
        """Where its files are, for as long as the block lasts."""


async def dropped_tensors(loader: AdapterFolder, digest: str) -> list[str]:
    """A warning for each tensor that is not applied, because it only repeats the base's."""
    names = await asyncio.to_thread(loader.dropped, digest)
    return [f"tensor {name} repeats the base's and was dropped" for name in names]


@dataclass(slots=True)
class _Question:
    """Logprobs so far, and the future of all of them."""

    answer: "asyncio.Future[list[TokenLogprob]]"
    logprobs: list[TokenLogprob] = field(default_factory=list)


class Inspector:
    """Everything runs on one event loop. The adapters asked about are loaded and stay so meanwhile."""

    def __init__(self, engine: Answering, loader: AdapterFolder, *, model: Path, dtype: str) -> None:
        self._engine, self._loader = engine, loader
        self._model, self._dtype = model, dtype
        self._open: dict[str, _Question] = {}
        self._checking = asyncio.Lock()

    async def changes(self, digest: str, *, force: bool) -> tuple[str, ...]:
        """Warnings. Raises IdenticalToBase unless forced, what the engine raises and what reading raises."""
        prompts = await asyncio.to_thread(self._loader.probe_prompts, digest, CHANGE_LENGTHS)
        warnings = await check_changes(self._ask, digest, prompts, force=force)
        return (*warnings, *await dropped_tensors(self._loader, digest))

    async def check(self, digest: str) -> Mapping[str, Any]:
        """The adapter against merged weights, see SelfCheck. One at a time: each takes a model's memory.

        Raises SelfCheckFailed, and what the engine and reading the folder raise.
        """
        async with self._checking:
            with self._loader.reading(digest) as folder:
                prompts = await asyncio.to_thread(self._loader.probe_prompts, digest, CHECK_LENGTHS)
                found = await self_check(
                    self._ask,
                    digest,
                    prompts,
                    model_folder=self._model,
                    adapter_folder=folder,
                    dtype=self._dtype,
                )
        return found.summary()

    def take(self, events: list[TokenEvent]) -> list[TokenEvent]:
        """Keep the events of own questions; returns the others."""
        others = [event for event in events if not event.request_id.startswith(PROBE)]
        if len(others) < len(events):
            for event in events:
                self._note(event)
        return others

    def _note(self, event: TokenEvent) -> None:
        """A question that was given up is open no more, though its last event may still come."""
        question = self._open.get(event.request_id)
        if question is None:
            return
        question.logprobs += event.logprobs or ()
        if event.finish is None or question.answer.done():
            return
        if event.finish == "length":
            question.answer.set_result(question.logprobs)
        else:
            reason = event.error or f"a probe ended with {event.finish}"
            question.answer.set_exception(GenerationError(reason))

    async def _ask(self, request: Request) -> list[TokenLogprob]:
        """Raises what Engine.add raises, and GenerationError."""
        question = _Question(asyncio.get_running_loop().create_future())
        self._open[request.id] = question
        try:
            await self._engine.add(request)
            return await question.answer
        except BaseException:
            self._engine.abort(request.id)
            raise
        finally:
            del self._open[request.id]
