"""The compiled library: made once, published whole, shared by processes, and honest where it cannot be."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import NativeUnavailable
from engine.native import build as building
from engine.native.library import SIGNATURES

SOURCE = 'extern "C" __attribute__((visibility("default"))) int answer() { return 42; }\n'


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of one function in place of the kernels, so that compiling takes no time."""
    folder = tmp_path / "csrc"
    folder.mkdir()
    (folder / "answer.cpp").write_text(SOURCE)
    monkeypatch.setattr(building, "SOURCES", folder)
    return folder


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Every compiler call."""
    calls: list[list[str]] = []
    run = building._run
    monkeypatch.setattr(building, "_run", lambda command: (calls.append(command), run(command))[1])
    return calls


def test_second_build_compiles_nothing(sources: Path, compilations: list[list[str]], tmp_path: Path) -> None:
    first = building.build(tmp_path / "cache")
    made = len(compilations)
    assert building.build(tmp_path / "cache") == first
    assert len(compilations) == made
    assert sorted(path.suffix for path in first.parent.iterdir()) == [".lock", ".sha256", ".so"]


def test_changed_source_or_flags_make_another_library(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {building.build(tmp_path / "cache")}
    (sources / "answer.cpp").write_text(SOURCE.replace("42", "43"))
    made.add(building.build(tmp_path / "cache"))
    monkeypatch.setattr(building, "FLAGS", (*building.FLAGS, "-DX"))
    made.add(building.build(tmp_path / "cache"))
    assert len(made) == 3


def test_only_the_kernels_may_use_more_than_plain_x86_64() -> None:
    assert set(building.LEVEL_FLAGS) == {path.name for path in building.SOURCES.glob("kernels_*.cpp")}
    assert not any(flag.startswith("-m") for flag in building.FLAGS)


BUILD = """
import sys, pathlib
from engine.native import build as building
building.SOURCES = pathlib.Path(sys.argv[1])
print(building.build(pathlib.Path(sys.argv[2])))
"""


def test_processes_that_build_at_once_share_one_library(sources: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUILD, str(sources), str(tmp_path / "cache")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    found = {process.communicate(timeout=120)[0].strip() for process in processes}
    assert {process.returncode for process in processes} == {0}
    assert [str(path) for path in (tmp_path / "cache").iterdir() if path.suffix == ".so"] == [*found]


def test_failed_compilation_names_the_error_and_leaves_nothing(sources: Path, tmp_path: Path) -> None:
    (sources / "answer.cpp").write_text("int answer() { return what; }\n")
    with pytest.raises(NativeUnavailable, match=r"could not compile the kernels: .*what"):
        building.build(tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_missing_compiler_is_named(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "COMPILERS", ("no-such-compiler",))
    with pytest.raises(NativeUnavailable, match=r"no C\+\+ compiler is installed; one of no-such-compiler"):
        building.build(tmp_path / "cache")


def test_other_processors_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(NativeUnavailable, match="written for x86-64; this machine is aarch64"):
        building.build(tmp_path)


def test_cache_that_cannot_be_written_is_named(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NativeUnavailable, match="cannot hold the compiled kernels"):
        building.build(tmp_path / "file" / "cache")


@pytest.mark.parametrize("left", [0, 1000])
def test_damaged_library_is_made_anew(sources: Path, tmp_path: Path, left: int) -> None:
    made = building.build(tmp_path / "cache")
    whole = made.read_bytes()
    made.write_bytes(whole[:left])
    assert building.build(tmp_path / "cache") == made
    assert len(made.read_bytes()) == len(whole)


def test_library_shows_its_interface_and_no_kernel() -> None:
    library = building.build(building.default_cache())
    listing = ["nm", "-D", "--defined-only", str(library)]
    shown = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    assert set(SIGNATURES) <= set(shown.split())
    assert "avx" not in shown
