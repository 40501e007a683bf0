"""Background threads come after everything else that wants a processor."""

import os
import threading

import pytest

from lora.background import LOWEST_PRIORITY, BackgroundThreads


async def test_work_runs_at_the_lowest_priority_and_leaves_the_caller_as_it_was() -> None:
    threads = BackgroundThreads(1, "spare")
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    priority = await threads.run(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
    assert priority == LOWEST_PRIORITY
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before
    threads.close()


async def test_what_work_raises_reaches_the_caller() -> None:
    threads = BackgroundThreads(1, "spare")
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    threads.close()
