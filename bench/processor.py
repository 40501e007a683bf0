"""CPU time by process, read from /proc: what each part of an instance costs. Linux only; knows no load."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

_KINDS = (
    (re.compile(r"ray::ServeReplica:\w+:Engine"), "engine replica"),
    (re.compile(r"ray::ServeReplica:\w+:Gateway"), "gateway"),
    (re.compile(r"ray::ServeReplica:\w+:Directory"), "directory"),
    (re.compile(r"ray::ServeController"), "Serve controller"),
    (re.compile(r"ray::"), "Ray, other workers"),
    (re.compile(r"raylet/raylet"), "raylet"),
    (re.compile(r"gcs_server"), "Ray, GCS"),
    (re.compile(r"dashboard|agent|log_monitor|monitor\.py"), "Ray, agents and monitors"),
    (re.compile(r"postgres"), "Postgres"),
    (re.compile(r"noria.* up"), "noria up"),
)


def family(roots: Iterable[int]) -> set[int]:
    """These processes and all that descend from them, now."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if (parent := _parent(pid)) is not None:
            children[parent].append(pid)
    found: set[int] = set()
    left = list(roots)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children[pid]
    return found


def kind_of(pid: int) -> str:
    """What a process is, by its command line; its own first word where none of the known ones fits."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "gone"
    return next((name for pattern, name in _KINDS if pattern.search(line)), line.split(" ", 1)[0] or "kernel")


def seconds(pids: Iterable[int]) -> dict[int, float]:
    """CPU seconds of each process since its start, of the threads that it still has."""
    return {pid: sum(found.values()) for pid in pids if (found := threads(pid))}


def threads(pid: int) -> dict[int, float]:
    """CPU seconds of each thread of a process, to the nanosecond; none for what has ended."""
    found: dict[int, float] = {}
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            on_cpu = Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0]
            found[int(task)] = int(on_cpu) / 1e9
    return found


def spent(before: Mapping[int, float], after: Mapping[int, float]) -> dict[int, float]:
    """Seconds between two readings; a process that began in between counts from its start."""
    return {pid: value - before.get(pid, 0.0) for pid, value in after.items()}


def by_kind(used: Mapping[int, float]) -> dict[str, float]:
    """Seconds by kind of process, most first."""
    total: defaultdict[str, float] = defaultdict(float)
    for pid, value in used.items():
        total[kind_of(pid)] += value
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def _parent(pid: int) -> int | None:
    """None for what has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[1])
