"""One running platform: Postgres, Ray and the Serve application, owned by this process.

    <data>/postgres/   the embedded server            <data>/store/    adapters, by digest
    <data>/models/     imported base models           <data>/cache/    fetched adapters of the replicas
    <data>/spool/      request records on their way   <data>/ray/      session folders and logs of Ray
    <data>/adapters/   what the admin API may load    <data>/state.json   who runs here, and where

One process owns a data folder at a time: it holds a lock on <data>/instance.lock for as long as it lives.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from db.database import Database
from noria import cluster, models
from noria.database import embedded
from noria.doctor import port_is_free
from noria.errors import InstanceError, NotRunning
from noria.ownership import make_folder, owned, owner_of
from noria.registration import open_registered
from noria.settings import Settings

Report = Callable[[str], None]

_STATE = "state.json"


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
        stack.enter_context(owned(settings.data))
        (settings.data / _STATE).unlink(missing_ok=True)  # of an owner that was killed
        make_folder(settings.data / "adapters")
        host, port = settings.server.host, settings.server.port
        if not port_is_free(host, port):
            raise InstanceError(f"{host}:{port} is in use; choose another with --port")
        folders = {model.id: models.prepare(model, settings.data, report) for model in settings.models}
        database = stack.enter_context(_database(settings, folders, report))
        stack.enter_context(_served(settings, database.url, folders, report))
        url = f"http://{_client_host(host)}:{port}/v1"
        stack.enter_context(_announced(settings.data, State(os.getpid(), url, time.time())))
        yield Instance(settings, url, database)


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
    path = data / _STATE
    written = path.with_suffix(".tmp")
    written.write_text(json.dumps(asdict(state), indent=2) + "\n", encoding="utf-8")
    written.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def state_of(data: Path) -> State | None:
    """The state of the instance that serves from `data`, or None, also while it starts or stops."""
    if owner_of(data) is None:
        return None
    try:
        told = json.loads((data / _STATE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
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
