"""The cache of compiled libraries: what is removed when a new one is made, and what never is."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from engine.native import build as building
from engine.native.pruning import KEPT, lock, mark_used, prune

DAY = 86_400


def library(cache: Path, name: str, unused_days: float) -> Path:
    """One that was last used so many days ago."""
    path = cache / f"noria-{name}.so"
    for suffix in (".so", ".sha256", ".lock"):
        path.with_suffix(suffix).write_text(name)
    at = time.time() - unused_days * DAY
    os.utime(path, (at, at))
    return path


def names(cache: Path) -> set[str]:
    return {path.stem.removeprefix("noria-") for path in cache.glob("*.so")}


def test_the_last_used_stay_and_old_ones_go(tmp_path: Path) -> None:
    new = library(tmp_path, "new", 0)
    for age in (2, 3, 4, 5, 6, 7):
        library(tmp_path, f"days{age}", age)
    library(tmp_path, "stale", 31)
    prune(tmp_path, new)
    assert names(tmp_path) == {"new", "days2", "days3", "days4", "days5"}
    assert len(names(tmp_path)) == 1 + KEPT
    assert {path.stem for path in tmp_path.iterdir()} == {path.stem for path in tmp_path.glob("*.so")}


def test_stale_ones_go_however_few_there_are(tmp_path: Path) -> None:
    new = library(tmp_path, "new", 40)
    library(tmp_path, "stale", 31)
    library(tmp_path, "days29", 29)
    prune(tmp_path, new)
    assert names(tmp_path) == {"new", "days29"}


def test_what_was_used_today_stays_however_many_there_are(tmp_path: Path) -> None:
    for i in range(9):
        library(tmp_path, f"today{i}", 0.5)
    prune(tmp_path, library(tmp_path, "new", 0))
    assert len(names(tmp_path)) == 10


def test_one_that_is_being_taken_up_stays(tmp_path: Path) -> None:
    new, held = library(tmp_path, "new", 0), library(tmp_path, "stale", 31)
    with lock(held):
        prune(tmp_path, new)
        assert held.exists()
    prune(tmp_path, new)
    assert not held.exists()


def test_builds_that_died_leave_nothing(tmp_path: Path) -> None:
    new = library(tmp_path, "new", 0)
    for name, age in (("build-old", 2 * DAY), ("build-now", 60)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.o").write_text("half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    prune(tmp_path, new)
    assert [path.name for path in tmp_path.glob("build-*")] == ["build-now"]


def test_a_build_prunes_and_a_use_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources, cache = tmp_path / "csrc", tmp_path / "cache"
    sources.mkdir()
    cache.mkdir()
    (sources / "answer.cpp").write_text('extern "C" int answer() { return 42; }\n')
    monkeypatch.setattr(building, "SOURCES", sources)
    library(cache, "stale", 31)
    made = building.build(cache)
    assert names(cache) == {made.stem.removeprefix("noria-")}
    os.utime(made, (0, 0))
    assert building.build(cache) == made
    assert time.time() - made.stat().st_mtime < DAY


def test_a_cache_that_is_only_read_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = library(tmp_path, "stale", 31)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    before = made.stat().st_mtime
    with lock(made):
        mark_used(made)
    assert made.stat().st_mtime == before
