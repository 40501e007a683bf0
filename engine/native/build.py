"""Compile the C++ sources into a shared library, once for each state of sources, compiler and flags.

The library is published by one rename and its digest stands beside it, so a reader never loads half a
file (which would kill the process); processes that want the same one at once wait for the first. Nothing
here runs code of the library.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.errors import NativeUnavailable
from engine.native.pruning import lock, mark_used, prune

SOURCES = Path(__file__).parent / "csrc"
COMPILERS = ("g++", "clang++", "c++")
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-fno-math-errno",
    # A row's result may not depend on how the compiler joins operations in one of several variants.
    "-ffp-contract=off",
)
AVX2 = ("-mavx2", "-mfma", "-mprfchw")
AVX512 = (*AVX2, *(f"-mavx512{part}" for part in ("f", "bw", "dq", "vl", "bf16", "vnni")))
LEVEL_FLAGS: Mapping[str, tuple[str, ...]] = {
    "kernels_avx2.cpp": AVX2,
    "kernels_avx512.cpp": AVX512,
    "kernels_amx.cpp": (*AVX512, "-mamx-tile", "-mamx-bf16"),
}
"""Instruction sets beyond plain x86-64, by the only files that may use them."""


def default_cache() -> Path:
    """Where libraries are kept unless the caller says otherwise."""
    return Path.home() / ".cache" / "noria" / "native"


def build(cache: Path) -> Path:
    """The shared library, compiled if `cache` does not hold it. Raises NativeUnavailable."""
    if platform.machine() not in ("x86_64", "AMD64"):
        raise NativeUnavailable(f"the kernels are written for x86-64; this machine is {platform.machine()}")
    compiler = find_compiler()
    target = cache / f"noria-{fingerprint(compiler)}.so"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with lock(target):
            if _is_whole(target):
                mark_used(target)
            else:
                _compile(compiler, target)
                prune(cache, target)
    except OSError as error:
        raise NativeUnavailable(f"{cache} cannot hold the compiled kernels: {error}") from error
    return target


def find_compiler() -> str:
    """Path of the first C++ compiler there is. Raises NativeUnavailable."""
    for name in COMPILERS:
        if (path := shutil.which(name)) is not None:
            return path
    raise NativeUnavailable(f"no C++ compiler is installed; one of {', '.join(COMPILERS)} is needed")


def fingerprint(compiler: str) -> str:
    """Names the library that these sources, this compiler and these flags make."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    state = hashlib.sha256(repr((version, FLAGS, sorted(LEVEL_FLAGS.items()))).encode())
    for source in sorted(SOURCES.iterdir()):
        state.update(f"\0{source.name}\0".encode() + source.read_bytes())
    return state.hexdigest()[:24]


def _compile(compiler: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as folder:
        sources = [
            _joined(Path(folder)),
            *(SOURCES / name for name in LEVEL_FLAGS if (SOURCES / name).exists()),
        ]
        objects = [Path(folder, source.stem + ".o") for source in sources]

        def one(source: Path, into: Path) -> None:
            flags = (*FLAGS, *LEVEL_FLAGS.get(source.name, ()))
            _run([compiler, *flags, "-c", str(source), "-o", str(into)])

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(one, sources, objects))
        library = Path(folder, target.name)
        _run([compiler, *FLAGS, "-shared", *map(str, objects), "-o", str(library)])
        _digest_file(target).write_text(_digest(library))
        library.rename(target)


def _joined(folder: Path) -> Path:
    """All plain sources as one: read apart, they take longer to parse than to compile."""
    joined = folder / "plain.cpp"
    plain = sorted(path for path in SOURCES.glob("*.cpp") if path.name not in LEVEL_FLAGS)
    joined.write_text("".join(f'#include "{path}"\n' for path in plain))
    return joined


def _digest_file(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _digest(library: Path) -> str:
    return hashlib.sha256(library.read_bytes()).hexdigest()


def _is_whole(library: Path) -> bool:
    """Whether the file is there as it was made; a full disk or a lost power supply leaves others."""
    recorded = _digest_file(library)
    return library.exists() and recorded.exists() and recorded.read_text() == _digest(library)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
        raise NativeUnavailable(f"{command[0]} could not compile the kernels: {said}")
