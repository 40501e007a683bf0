"""One running platform: Postgres, Ray and the Serve application, owned by this process.

    <data>/postgres/   the embedded server            <data>/store/    adapters, by digest
    <data>/models/     imported base models           <data>/cache/    fetched adapters of the replicas
    <data>/spool/      request records on their way   <data>/ray/      session folders and logs of Ray
    <data>/adapters/   what the admin API may load    <data>/state.json   who runs here, and where

One process owns a data folder at a time: it holds a lock on <data>/instance.lock for as long as it lives.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO

from db.database import Database
from noria import cluster, models
from noria.database import embedded
from noria.doctor import port_is_free
from noria.errors import InstanceError, InstanceRunning, NotRunning
from noria.registration import open_registered
from noria.settings import Settings

Report = Callable[[str], None]

_LOCK_TRIES = 5
_LOCK_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class State:
    """What a running instance tells other processes through <data>/state.json."""

    pid: int
    url: str
    started_at: float


@dataclass(frozen=True, slots=True)
class Instance:
    """A platform that serves; made by `running`."""

    settings: Settings
    url: str
    """Base URL for OpenAI clients, such as http://127.0.0.1:8000/v1."""
    database: Database


@contextmanager
def running(settings: Settings, report: Report) -> Iterator[Instance]:
    """Bring the platform up for the length of the block, and take all of it down after.

    Raises InstanceRunning if another process owns the data folder, InstanceError if the port is taken.
    """
    with ExitStack() as stack:
        stack.enter_context(_owned(settings.data))
        host, port = settings.server.host, settings.server.port
        if not port_is_free(host, port):
            raise InstanceError(f"{host}:{port} is in use; choose another with --port")
        folders = {model.id: models.prepare(model, settings.data, report) for model in settings.models}
        database = stack.enter_context(_database(settings, folders, report))
        stack.enter_context(_served(settings, database.url, folders, report))
        url = f"http://{_client_host(host)}:{port}/v1"
        stack.enter_context(_announced(settings.data, State(os.getpid(), url, time.time())))
        yield Instance(settings, url, database)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents. Raises InstanceError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InstanceError(f"the folder {folder} cannot be made: {error.strerror}") from error


@contextmanager
def _owned(data: Path) -> Iterator[None]:
    make_folder(data)
    try:
        lock = (data / "instance.lock").open("w")
    except OSError as error:
        raise InstanceError(f"the data folder {data} cannot be written: {error.strerror}") from error
    with lock:
        if not _locked(lock, _LOCK_TRIES):
            raise InstanceRunning(
                f"{data} belongs to a running instance; stop it with `noria down --data {data}`"
            )
        (data / "state.json").unlink(missing_ok=True)  # of an owner that was killed
        yield


def _locked(lock: IO[str], tries: int) -> bool:
    """Take the lock if nobody owns it; `state_of` may hold it for an instant."""
    for _ in range(tries):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_S)
        else:
            return True
    return False


@contextmanager
def _database(settings: Settings, folders: dict[str, Path], report: Report) -> Iterator[Database]:
    server = embedded(settings)
    report("postgres: starting" if server else "postgres: connecting")
    with ExitStack() as stack:
        if server:
            stack.callback(server.stop)
        yield stack.enter_context(open_registered(settings, folders))


@contextmanager
def _served(settings: Settings, url: str, folders: dict[str, Path], report: Report) -> Iterator[None]:
    report("ray: starting")
    with cluster.joined(settings):
        import serve.app  # after the cluster's token is set: Ray reads it when imported

        report(f"serve: starting {', '.join(folders)}")
        try:
            serve.app.deploy(cluster.app_config(settings, url, folders))
            yield
        finally:
            serve.app.shutdown()


@contextmanager
def _announced(data: Path, state: State) -> Iterator[None]:
    path = data / "state.json"
    written = path.with_suffix(".tmp")
    written.write_text(json.dumps(asdict(state), indent=2) + "\n", encoding="utf-8")
    written.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def state_of(data: Path) -> State | None:
    """The state of the instance that runs on `data`, or None; leftovers of a killed one do not count."""
    try:
        with (data / "instance.lock").open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except BlockingIOError:
        pass
    try:
        told = json.loads((data / "state.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None  # the owner is still starting
    return State(**{field.name: told[field.name] for field in fields(State)})  # a newer noria may tell more


def running_url(settings: Settings) -> str:
    """Base URL of the instance on this data folder. Raises NotRunning."""
    state = state_of(settings.data)
    if state is None:
        raise NotRunning(
            f"no instance serves {settings.data}; start one with `noria up --data {settings.data}`"
        )
    return state.url


def _client_host(host: str) -> str:
    if host == "0.0.0.0":
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
