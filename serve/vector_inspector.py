"""A replica's question to its own engine about an adapter: does it change any vector?"""

import asyncio
from collections.abc import Mapping
from typing import Any

from lora.probe import CHANGE_LENGTHS, unchanged
from serve.embedding_worker import TextEngine
from serve.errors import WrongTask
from serve.inspector import AdapterFolder, dropped_tensors


class VectorInspector:
    """Everything runs on one event loop. The adapters asked about are loaded and stay so meanwhile."""

    def __init__(self, engine: TextEngine, loader: AdapterFolder, *, model: str) -> None:
        self._engine, self._loader, self._model = engine, loader, model

    async def changes(self, digest: str, *, force: bool) -> tuple[str, ...]:
        """Warnings. Raises IdenticalToBase unless forced, what the engine raises and what reading raises."""
        texts = await asyncio.to_thread(self._loader.probe_prompts, digest, CHANGE_LENGTHS)
        warnings: tuple[str, ...] = ()
        if await self._engine.embed(texts, digest) == await self._engine.embed(texts):
            warnings = unchanged(digest, len(texts), force=force)
        return (*warnings, *await dropped_tensors(self._loader, digest))

    async def check(self, digest: str) -> Mapping[str, Any]:
        """Logprobs are what the self-check compares, and vectors have none. Raises WrongTask."""
        raise WrongTask(self._model, "embed")
