"""What a gateway does in the background: one coroutine that goes on from start() to close()."""

import asyncio
import contextlib
from abc import ABC, abstractmethod


class Following(ABC):
    """Owns the task. For one event loop."""

    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Go on in the background from now on."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        """Do no more; returns once it has ended."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @abstractmethod
    async def _follow(self) -> None:
        """Runs until it is cancelled."""
