"""The `noria` command: puts the groups together and turns known errors into one line."""

from __future__ import annotations

import sys

import typer

from bench.errors import BenchError
from db.errors import DbError
from engine.errors import EngineError
from evals.errors import EvalError
from lora.errors import LoraError
from noria.commands import adapters, bench, database, instance, loop, registry, rollout, stops, store
from noria.console import err
from noria.errors import NoriaError
from pipeline.errors import PipelineError
from serve.errors import ServeError

app = typer.Typer(
    name="noria",
    help="Serve open models with many LoRA adapters, and let the traffic train the next one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for group in (instance.app, loop.app, rollout.app, stops.app):
    app.registered_commands += group.registered_commands
app.add_typer(loop.dataset, name="dataset")
app.add_typer(rollout.canary, name="canary")
app.add_typer(adapters.app, name="adapters")
app.add_typer(registry.endpoint, name="endpoint")
app.add_typer(registry.consent, name="consent")
app.add_typer(registry.tenant, name="tenant")
app.add_typer(registry.key, name="key")
app.add_typer(registry.model, name="model")
app.add_typer(database.app, name="db")
app.add_typer(store.app, name="store")
app.add_typer(bench.app, name="bench")

_EXPLAINED = (
    NoriaError,
    BenchError,
    DbError,
    EngineError,
    EvalError,
    LoraError,
    PipelineError,
    ServeError,
)


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except _EXPLAINED as error:
        err.print(f"noria: {error}", markup=False)
        sys.exit(1)
