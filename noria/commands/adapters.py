"""`noria adapters`: what the registry holds, and the running instance's adapters by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from db.database import Database
from db.rows import AdapterRow
from noria import options
from noria.admin_client import AdminClient
from noria.console import as_json, out, table
from noria.database import open_database

app = typer.Typer(help="Adapters: list, show, load, unload, pin and check them.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Adapter id.")]
PAGE = 500


@app.command("list")
def list_adapters(
    endpoint: Annotated[str | None, typer.Option(help="Only versions of this endpoint.")] = None,
    status: Annotated[str | None, typer.Option(help="Only adapters of this status.")] = None,
    base: Annotated[str | None, typer.Option(help="Only adapters of this base model.")] = None,
    loaded: Annotated[bool | None, typer.Option("--loaded/--unloaded", help="Only such.")] = None,
    config: options.Config = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """List the adapters of the registry, of any status; no running instance is needed."""
    wanted = {"endpoint": endpoint, "status": status, "base_model": base, "loaded": loaded}
    with open_database(options.settings(config, data)) as db:
        rows = list(_rows(db, wanted))
    if json:
        as_json([asdict(row) for row in rows])
        return
    columns = ("id", "endpoint", "status", "%", "loaded", "pinned", "base model", "digest", "bytes")
    table("adapters", columns, map(_cells, rows))


def _rows(db: Database, wanted: dict[str, Any]) -> Iterator[AdapterRow]:
    from db import registry

    after: str | None = None
    while page := registry.page(db, limit=PAGE, after=after, **wanted):
        yield from page
        after = page[-1].id


def _cells(row: AdapterRow) -> tuple[object, ...]:
    marks = ("yes" if row.loaded else "no", "yes" if row.pinned else "no")
    share = f"{row.traffic_pct:g}"
    return (row.id, row.endpoint, row.status, share, *marks, row.base_model, row.digest[:19], row.bytes)


@app.command()
def show(
    name: Name, config: options.Config = None, data: options.Data = None, json: options.Json = False
) -> None:
    """Show an adapter and where it is on each replica."""
    _show(AdminClient(options.settings(config, data)).show(name), json)


@app.command()
def load(
    name: Annotated[str, typer.Argument(help="Name that clients will send as `model`.")],
    path: Annotated[str, typer.Argument(help="PEFT folder below an adapter root.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace the adapter of this name.")] = False,
    pin: Annotated[bool, typer.Option("--pin", help="Keep it resident on every replica.")] = False,
    base: Annotated[str | None, typer.Option(help="Base model id, where there are several.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Though it names another base model.")] = False,
    config: options.Config = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Check an adapter, load it on every replica, and name it; else exit code 1 and the reason."""
    body = {
        "lora_name": name,
        "lora_path": path,
        "load_inplace": replace,
        "pinned": pin,
        "base_model": base,
        "force": force,
    }
    told = AdminClient(options.settings(config, data)).load(body)
    if json:
        as_json(told)
        return
    out.print(f"{told['id']}: {told['digest']} on {told['base_model']}, {told['bytes']} bytes", markup=False)
    for warning in told["warnings"]:
        out.print(f"warning: {warning}", markup=False)
    out.print(
        f"modules: {len(told['matched_modules'])}; replicas: {', '.join(told['replicas'])}", markup=False
    )


@app.command()
def unload(name: Name, config: options.Config = None, data: options.Data = None) -> None:
    """Stop naming an adapter, and free it once its running requests have ended."""
    out.print(AdminClient(options.settings(config, data)).unload(name)["message"], markup=False)


@app.command()
def pin(name: Name, config: options.Config = None, data: options.Data = None) -> None:
    """Keep an adapter resident on every replica, also after a restart."""
    AdminClient(options.settings(config, data)).act(name, "pin")
    out.print(f"{name}: pinned", markup=False)


@app.command()
def unpin(name: Name, config: options.Config = None, data: options.Data = None) -> None:
    """Take back a pin."""
    AdminClient(options.settings(config, data)).act(name, "unpin")
    out.print(f"{name}: not pinned", markup=False)


@app.command()
def check(
    name: Name, config: options.Config = None, data: options.Data = None, json: options.Json = False
) -> None:
    """Compare an adapter's answers with merged weights on one replica; exit code 1 if they differ."""
    told = AdminClient(options.settings(config, data)).act(name, "check")
    if json:
        as_json(told)
    else:
        table(name, ("", ""), ((part, value) for part, value in told.items() if part not in ("object", "id")))
    raise typer.Exit(0 if told["passed"] else 1)


def _show(told: dict[str, Any], json: bool) -> None:
    if json:
        as_json(told)
        return
    parts = ("digest", "base_model", "endpoint", "status", "loaded", "pinned", "parent", "bytes")
    table(told["id"], ("", ""), ((part, told[part]) for part in parts))
    columns = ("replica", "state", "slot", "bytes", "pins", "waiting")
    rows = ([place[column] for column in columns] for place in told["residency"])
    table("residency", columns, rows)
