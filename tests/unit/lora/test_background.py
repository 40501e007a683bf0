"""Background threads take less of a processor than others."""

import os
import threading

import pytest

from lora.background import NICE, BackgroundThreads


async def test_work_runs_at_a_low_priority_and_leaves_the_caller_as_it_was() -> None:
    threads = BackgroundThreads(1, "spare")
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    priority = await threads.run(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
    assert priority == NICE
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before
    threads.close()


async def test_what_work_raises_reaches_the_caller() -> None:
    threads = BackgroundThreads(1, "spare")
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    threads.close()
