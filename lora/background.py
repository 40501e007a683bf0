"""Threads for work that must not be felt: what else wants a processor gets more of it."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

NICE = 5
"""A third of the processor beside a thread of the usual priority (sched(7)). With much less, such a thread is
kept from the processor just while it holds what a step waits for: the interpreter's lock, the memory map.
Measured on 2 cores while an adapter of rank 64 loads beside 16 streams: the longest gap is 73 ms at 19,
42 ms at 5, and 43 ms at 0, where the median gap grows by 70 % instead of 40 %."""


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
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
