"""CPU time by process, of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from bench.processor import by_kind, family, seconds, spent, threads

BURN = "import sys; print(sum(range(2_000_000)), flush=True); sys.stdin.read()"


def test_a_family_is_a_process_and_its_descendants() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = family([os.getpid()])
        used = seconds(found)
        assert {os.getpid(), child.pid} <= found
        assert used[child.pid] > 0
        assert sum(threads(child.pid).values()) >= used[child.pid]
        child.communicate()
    assert child.pid not in family([os.getpid()])
    assert child.pid not in seconds([child.pid])


def test_what_was_spent_is_the_difference() -> None:
    before = seconds([os.getpid()])
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    used = spent(before, seconds([os.getpid()]))
    assert used[os.getpid()] >= 0.04
    assert sum(by_kind(used).values()) == sum(used.values())


def test_a_process_that_began_meanwhile_counts_from_its_start() -> None:
    assert spent({1: 2.0}, {1: 2.5, 7: 3.0}) == {1: 0.5, 7: 3.0}
