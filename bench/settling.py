"""Waits until the machine is at rest.

Threads of one server spin for seconds after its run; what they take would be charged to the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

AT_REST = 0.1
"""Part of all processors' time that may be spent."""

Ticks = tuple[int, int]
"""Time spent and time in all since the machine started, of all processors together."""


def read_ticks() -> Ticks:
    """From the first line of /proc/stat (proc_stat(5)); waiting for a disk counts as rest."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def settle(limit_s: float = 10.0, *, pause_s: float = 0.5, ticks: Callable[[], Ticks] = read_ticks) -> bool:
    """Return when `pause_s` went by with the processors at rest; False when `limit_s` went by without."""
    end = time.monotonic() + limit_s
    spent, total = ticks()
    while time.monotonic() < end:
        time.sleep(pause_s)
        spent_now, total_now = ticks()
        if spent_now - spent <= AT_REST * (total_now - total):
            return True
        spent, total = spent_now, total_now
    return False
