"""`noria db`: reach the database of an instance, running or not."""

from __future__ import annotations

import subprocess
from typing import Annotated

import typer

from noria import options
from noria.console import out
from noria.database import database_url, open_database

app = typer.Typer(help="Reach the database of an instance.", no_args_is_help=True)


@app.command()
def url(config: options.Config = None, data: options.Data = None) -> None:
    """Print the URL of the database; starts the embedded server if it is not running, and leaves it so."""
    out.print(database_url(options.settings(config, data)), soft_wrap=True)


@app.command()
def migrate(config: options.Config = None, data: options.Data = None) -> None:
    """Bring the schema to this version."""
    from db import migrate as migrations

    address = database_url(options.settings(config, data))
    before = migrations.current(address)
    migrations.upgrade(address)
    out.print(f"schema: {before or 'empty'} -> {migrations.current(address)}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(
    context: typer.Context,
    config: options.Config = None,
    data: options.Data = None,
    command: Annotated[str | None, typer.Option("-c", "--command", help="Run one command and leave.")] = None,
) -> None:
    """Open psql on the database; further words go to psql. A server started for it is stopped after it."""
    from db.embedded import psql_path

    with open_database(options.settings(config, data)) as db:
        words = [str(psql_path()), db.url, "-v", "ON_ERROR_STOP=1", *context.args]
        done = subprocess.run(words + (["-c", command] if command else []), check=False)
    raise typer.Exit(done.returncode)
