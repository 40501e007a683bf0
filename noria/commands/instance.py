"""`noria up`, `down`, `status`, `doctor` and `demo`: an instance as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from noria import options
from noria.console import out, table
from noria.database import embedded, keep_database
from noria.doctor import examine
from noria.errors import InstanceError, InstanceRunning
from noria.instance import Instance, running, state_of
from noria.ownership import make_folder, owner_of
from noria.settings import Settings

app = typer.Typer()
_STOP_TIMEOUT_S = 60


@app.command()
def up(
    config: options.Config = None,
    host: options.Host = None,
    port: options.Port = None,
    data: options.Data = None,
    model: options.Models = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Serve in the background.")] = False,
) -> None:
    """Serve the platform: Postgres, Ray, every base model and the HTTP endpoint."""
    settings = options.settings(config, data, host, port, model)
    if detach:
        _start_in_background(settings)
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with running(settings, _report) as instance:
            _greet(instance)
            keep_database(settings, _report)
    except KeyboardInterrupt:
        out.print("stopped")


def _report(line: str) -> None:
    out.print(f"  {line}")


_EXAMPLES = {
    "generate": ("chat/completions", '"messages": [{"role": "user", "content": "Hello"}]'),
    "embed": ("embeddings", '"input": "Hello"'),
}
"""By the task of a model: what it may be asked."""


def _greet(instance: Instance) -> None:
    settings = instance.settings
    name = settings.endpoints[0].name if settings.endpoints else settings.models[0].id
    base = settings.model(settings.endpoints[0].model) if settings.endpoints else settings.models[0]
    path, body = _EXAMPLES[base.task]
    out.print(f"noria serves {instance.url}")
    out.print(
        f"  curl {instance.url}/{path} -H 'content-type: application/json' \\\n"
        f'    -d \'{{"model": "{name}", {body}}}\''
    )


def _start_in_background(settings: Settings) -> None:
    """Start `noria up` as a process of its own, show what it says until it serves, and leave it."""
    if state_of(settings.data):
        raise InstanceRunning(f"{settings.data} is served already, at {_url(settings.data)}")
    log_path = settings.data / "logs" / "up.log"
    make_folder(log_path.parent)
    words = [word for word in sys.argv[1:] if word not in ("--detach", "-d")]
    with log_path.open("w", encoding="utf-8") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "noria", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with log_path.open(encoding="utf-8") as log:
        while True:
            ready = state_of(settings.data) is not None
            ended = child.poll() is not None
            out.print(log.read(), end="")
            if ended:
                raise InstanceError(f"the platform did not start; its log is {log_path}")
            if ready:
                break
            time.sleep(0.2)
    here = settings.data.is_relative_to(Path.cwd())
    data = settings.data.relative_to(Path.cwd()) if here else settings.data
    out.print(f"  log: {log_path}; stop it with `noria down --data {data}`", soft_wrap=True)


def _url(data: Path) -> str:
    state = state_of(data)
    return state.url if state else "an address not yet known"


@app.command()
def down(config: options.Config = None, data: options.Data = None) -> None:
    """Stop the instance of a data folder, and its database."""
    settings = options.settings(config, data)
    owner = owner_of(settings.data)
    if owner:
        os.kill(owner, signal.SIGTERM)
        _wait_until_gone(settings.data, owner)
    server = embedded(settings)
    left_over = server is not None and server.running()
    if server and left_over:
        server.stop()
    out.print("stopped" if owner or left_over else f"nothing runs on {settings.data}")


def _wait_until_gone(data: Path, pid: int) -> None:
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while owner_of(data) is not None:
        if time.monotonic() > deadline:
            raise InstanceError(f"process {pid} did not stop within {_STOP_TIMEOUT_S} s")
        time.sleep(0.2)


@app.command()
def status(config: options.Config = None, data: options.Data = None) -> None:
    """Show what runs on a data folder; exit code 1 if nothing does."""
    settings = options.settings(config, data)
    state = state_of(settings.data)
    if state is None:
        out.print(f"nothing runs on {settings.data}")
        raise typer.Exit(1)
    minutes = (time.time() - state.started_at) / 60
    out.print(f"serving {state.url} (process {state.pid}, for {minutes:.0f} min)")


@app.command()
def doctor(
    config: options.Config = None,
    host: options.Host = None,
    port: options.Port = None,
    data: options.Data = None,
    model: options.Models = None,
) -> None:
    """Say what this machine lacks; exit code 1 if anything does."""
    findings = examine(options.settings(config, data, host, port, model))
    table("", ("", "what", "found"), (("ok" if f.ok else "MISSING", f.name, f.detail) for f in findings))
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


@app.command()
def demo(
    config: options.Config = None,
    port: options.Port = None,
    data: options.Data = None,
) -> None:
    """Turn the whole loop once on a small real model, and tell what happened."""
    from noria.demo.runner import run

    raise typer.Exit(run(options.settings(config, data, port=port), out))
