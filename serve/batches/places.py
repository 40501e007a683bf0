"""How many requests of batches are under way: as many as idle capacity allows, few beside interactive ones.

The engine serves those first anyway, but the step that is running it cannot take back: each line that begins
beside them costs them the time of its prompt.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

LOOK_S = 0.05
QUIET_S = 1.0
"""How long nobody must have asked: between two requests of a client is no idle time."""


class Places:
    """Handed out in order of asking. is_busy: whether anybody waits for an answer now."""

    def __init__(self, idle: int, beside: int, is_busy: Callable[[], bool]) -> None:
        self._idle = idle
        self._beside = min(idle, beside)
        self._is_busy = is_busy
        self._busy_at = -QUIET_S
        self._taken = 0
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    @property
    def most(self) -> int:
        """Places while nobody else asks."""
        return self._idle

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Wait for a place, and have it for the length of the block."""
        async with self._turn:
            while self._taken >= self._now():
                self._freed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._freed.wait()
            self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1
            self._freed.set()

    def _now(self) -> int:
        now = time.monotonic()
        if self._is_busy():
            self._busy_at = now
        return self._beside if now < self._busy_at + QUIET_S else self._idle
