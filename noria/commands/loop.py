"""`noria dataset`, `noria train`, `noria evaluate`: from feedback to a measured candidate."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from noria import options
from noria.console import as_json, out, table
from noria.database import open_database
from noria.instance import running_url
from noria.loop import base_of, completer, evaluate_adapter, evaluate_base, held_out, train_adapter

dataset = typer.Typer(help="Freeze and show data sets.", no_args_is_help=True)
app = typer.Typer()
Endpoint = Annotated[str, typer.Argument(help="Endpoint.")]


@dataset.command()
def freeze(
    endpoint: Endpoint,
    seed: Annotated[int, typer.Option(help="Seed of the order of rows.")] = 0,
    tenant: Annotated[str, typer.Option(help="Tenant whose traffic is used.")] = "default",
    config: options.Config = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Freeze the consented, rated traffic of an endpoint into a KTO snapshot."""
    from db.rows import FreezeParams
    from pipeline.dataset import freeze as freeze_snapshot

    with open_database(options.settings(config, data)) as db:
        params = FreezeParams(endpoint=endpoint, tenant=tenant, seed=seed, held_out=held_out())
        _show_snapshot(freeze_snapshot(db, params), json)


@dataset.command()
def show(
    snapshot: Annotated[str, typer.Argument(help="Snapshot id.")],
    config: options.Config = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Show a snapshot: its counts at each filter, hash and seed."""
    from db import datasets

    with open_database(options.settings(config, data)) as db:
        _show_snapshot(datasets.show(db, snapshot), json)


def _show_snapshot(snapshot: Any, json: bool) -> None:
    from dataclasses import asdict

    if json:
        as_json(asdict(snapshot))
        return
    out.print(f"snapshot {snapshot.id} of {snapshot.endpoint} ({snapshot.method}), as of {snapshot.as_of}")
    out.print(f"rows {snapshot.rows}: {snapshot.desirable} desirable, {snapshot.undesirable} undesirable")
    out.print(f"set hash {snapshot.set_hash}, seed {snapshot.seed}")
    table("left after each filter", ("filter", "rows"), snapshot.counts.items())


@app.command()
def train(
    endpoint: Endpoint,
    adapter: Annotated[str, typer.Option("--as", help="Id of the new adapter.")],
    snapshot: Annotated[str | None, typer.Option(help="Snapshot id.", show_default="the newest")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Stop after this many steps.")] = None,
    config: options.Config = None,
    data: options.Data = None,
) -> None:
    """Train a LoRA adapter on a snapshot and register it as a candidate."""
    settings = options.settings(config, data)
    with open_database(settings) as db:
        result = train_adapter(settings, db, endpoint, adapter, snapshot_id=snapshot, max_steps=steps)
    out.print(
        f"{result.adapter_id} {result.digest}: {result.steps} steps in {result.seconds:.0f} s, "
        f"loss {result.first_loss:.3f} -> {result.last_loss:.3f}, {result.n_trained} of {result.n_in} rows"
    )


@app.command()
def evaluate(
    subject: Annotated[str, typer.Argument(help="Adapter id or base model id.")],
    suite: Annotated[list[str] | None, typer.Option(help="Suite. Repeatable.", show_default="all")] = None,
    url: Annotated[
        str | None, typer.Option(help="Base URL of the API.", show_default="this instance")
    ] = None,
    config: options.Config = None,
    data: options.Data = None,
) -> None:
    """Run evaluation suites against a served adapter or base model and record the results."""
    settings = options.settings(config, data)
    with open_database(settings) as db, completer(url or running_url(settings), settings, db) as client:
        if any(subject == model.id for model in settings.models):
            results = evaluate_base(db, client, base_of(db, subject), suite)
        else:
            results = evaluate_adapter(db, client, subject, suite)
    rows = (
        (name, metric.name, metric.value, metric.low, metric.high, metric.n, metric.unscored)
        for name, result in results.items()
        for metric in result.metrics
    )
    table(f"{subject}", ("suite", "metric", "value", "low", "high", "n", "unscored"), map(_rounded, rows))


def _rounded(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(f"{cell:.3f}" if isinstance(cell, float) else cell for cell in row)
