"""`noria canary`, `promote`, `rollback`: from candidate to production and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from db.errors import GateClosed
from db.rows import ArmFigures, CanaryStatus
from noria import options
from noria.console import as_json, out, table
from noria.database import open_database

canary = typer.Typer(help="Give a candidate a sticky share of the traffic.", no_args_is_help=True)
app = typer.Typer()
Adapter = Annotated[str, typer.Argument(help="Adapter id.")]


@canary.command("start")
def start_canary(
    adapter: Adapter,
    percent: Annotated[float, typer.Option(min=0, max=100, help="Share of the users.")] = 5.0,
    config: options.Config = None,
    data: options.Data = None,
) -> None:
    """Start a canary, or change the share of a running one; users keep their version when it grows."""
    from pipeline import canary as canaries

    with open_database(options.settings(config, data)) as db:
        row = canaries.start(db, adapter, percent)
    out.print(f"{row.id} gets {row.traffic_pct:g} % of {row.endpoint}, from bucket {row.canary_start}")


@canary.command("status")
def canary_status(
    adapter: Adapter, config: options.Config = None, data: options.Data = None, json: options.Json = False
) -> None:
    """Show the figures of both arms, the verdict and its horizon."""
    from pipeline import canary as canaries

    with open_database(options.settings(config, data)) as db:
        status = canaries.status(db, adapter)
    if json:
        as_json(asdict(status))
    else:
        show_status(status)


@canary.command("stop")
def stop_canary(adapter: Adapter, config: options.Config = None, data: options.Data = None) -> None:
    """Stop a canary; the adapter is a candidate again."""
    from pipeline import canary as canaries

    with open_database(options.settings(config, data)) as db:
        row = canaries.stop(db, adapter)
    out.print(f"{row.id} is {row.status}")


def show_status(status: CanaryStatus) -> None:
    """Print a canary's figures for people."""

    def cells(name: str, arm: ArmFigures) -> tuple[object, ...]:
        counts = (f"{arm.configured_pct:g}", arm.users, arm.requests, arm.raters)
        rates = (arm.up_rate, arm.rating_rate, arm.regenerate_rate, arm.error_rate)
        return (name, arm.adapter_id or "base", *counts, *("-" if r is None else f"{r:.1%}" for r in rates))

    columns = ("arm", "adapter", "%", "users", "requests", "raters", "up", "rated", "regenerated", "errors")
    table(status.endpoint, columns, (cells("candidate", status.candidate), cells("control", status.control)))
    if status.difference is not None and status.low is not None and status.high is not None:
        out.print(
            f"difference {status.difference:+.3f}, always valid in [{status.low:+.3f}, {status.high:+.3f}]"
        )
    horizon = (
        "" if status.horizon_raters is None else f"; about {status.horizon_raters} more raters an arm needed"
    )
    out.print(f"verdict: {status.verdict} ({status.reason}){horizon}")


@app.command()
def promote(
    adapter: Adapter,
    override: options.Why = None,
    config: options.Config = None,
    data: options.Data = None,
) -> None:
    """Make an adapter the production version of its endpoint; a closed gate says why, with exit code 1."""
    from pipeline import promotion

    with open_database(options.settings(config, data)) as db:
        try:
            row = promotion.promote(db, adapter, override_reason=override)
        except GateClosed as closed:
            table(f"{adapter} may not be promoted", ("reason", "suite", "metric", "detail"), _reasons(closed))
            raise typer.Exit(1) from closed
    out.print(f"{row.endpoint}: {row.id} is prod")


def _reasons(closed: GateClosed) -> list[tuple[object, ...]]:
    return [(row.reason, row.suite, row.metric, row.detail) for row in closed.blockers]


@app.command()
def rollback(
    endpoint: Annotated[str, typer.Argument(help="Endpoint.")],
    config: options.Config = None,
    data: options.Data = None,
) -> None:
    """Bring back what served the endpoint before its production version."""
    from pipeline import promotion

    with open_database(options.settings(config, data)) as db:
        row = promotion.rollback(db, endpoint)
    out.print(f"{endpoint}: {row.id if row else 'the base model'} serves")
