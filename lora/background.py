"""Threads for work that must not be felt: they get a processor only while nothing else wants it."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

LOWEST_PRIORITY = 19


class BackgroundThreads:
    """Up to `number` threads. Owned by whoever made it, who closes it."""

    def __init__(self, number: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(number, thread_name_prefix=name, initializer=_give_way)

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises. Cancelled, it stops waiting; work that has begun goes on."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Begin nothing more, and wait for nothing."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _give_way() -> None:
    """On Linux a nice value belongs to a thread (setpriority(2)), and goes on to threads it starts."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
