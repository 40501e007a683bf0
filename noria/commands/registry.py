"""`noria endpoint`, `consent`, `tenant`, `key`, `model`: what must exist before traffic can be used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noria import options
from noria.console import out
from noria.database import open_database

endpoint = typer.Typer(help="Endpoints: the stable names that clients call.", no_args_is_help=True)
consent = typer.Typer(help="Who allows their traffic to be used for training.", no_args_is_help=True)
key = typer.Typer(
    help="API keys of clients, asked for when server.require_api_key is set.", no_args_is_help=True
)
tenant = typer.Typer(
    help="Tenants: what one keeps, answers and files and batches, no other sees.", no_args_is_help=True
)
model = typer.Typer(help="Base models.", no_args_is_help=True)
Tenant = Annotated[str, typer.Option(help="Tenant.")]
User = Annotated[str | None, typer.Option(help="One user of the tenant.", show_default="the whole tenant")]


@endpoint.command("create")
def create_endpoint(
    name: Annotated[str, typer.Argument(help="Name that clients send as `model`.")],
    base: Annotated[str, typer.Option("--base", help="Base model id.")],
    config: options.Config = None,
    data: options.Data = None,
) -> None:
    """Create an endpoint; until an adapter is promoted its base model answers."""
    from db import registry
    from noria.loop import base_of

    with open_database(options.settings(config, data)) as db:
        row = registry.create_endpoint(db, name, base_of(db, base).name)
    out.print(f"{row.name}: served by {row.base_model}")


@consent.command("grant")
def grant(
    tenant: Tenant = "default", user: User = None, config: options.Config = None, data: options.Data = None
) -> None:
    """Record that traffic may be used for training."""
    from db import consent as ledger

    with open_database(options.settings(config, data)) as db:
        row = ledger.grant(db, tenant, user)
    out.print(f"{row.action}: {row.tenant} {row.user_key or '(all users)'} at {row.at}")


@consent.command("withdraw")
def withdraw(
    tenant: Tenant = "default", user: User = None, config: options.Config = None, data: options.Data = None
) -> None:
    """Record that traffic may no longer be used for training."""
    from db import consent as ledger

    with open_database(options.settings(config, data)) as db:
        row = ledger.withdraw(db, tenant, user)
    out.print(f"{row.action}: {row.tenant} {row.user_key or '(all users)'} at {row.at}")


@tenant.command("create")
def create_tenant(
    name: Annotated[str, typer.Argument(help="Name of the tenant.")],
    config: options.Config = None,
    data: options.Data = None,
) -> None:
    """Create a tenant, to whom keys may belong."""
    from db import tenants

    with open_database(options.settings(config, data)) as db:
        tenants.create(db, name)
    out.print(name)


@key.command("create")
def create_key(tenant: Tenant = "default", config: options.Config = None, data: options.Data = None) -> None:
    """Make an API key and print it; only its digest is kept."""
    from db import keys

    with open_database(options.settings(config, data)) as db:
        out.print(keys.create(db, tenant))


@key.command("revoke")
def revoke_key(
    value: Annotated[str, typer.Argument(help="The key.")],
    config: options.Config = None,
    data: options.Data = None,
) -> None:
    """End the validity of an API key; exit code 1 if it was not valid."""
    from db import keys

    with open_database(options.settings(config, data)) as db:
        revoked = keys.revoke(db, value)
    out.print("revoked" if revoked else "no such key is valid")
    raise typer.Exit(0 if revoked else 1)


@model.command("import")
def import_model(
    source: Annotated[str, typer.Argument(help="GGUF file, or org/repo[@revision] of the Hugging Face hub.")],
    folder: Annotated[Path, typer.Argument(help="Hugging Face folder to write.")],
) -> None:
    """Bring a GGUF file or a model of the hub into a folder that can be served and trained."""
    from noria.model_import import import_source

    out.print(f"{import_source(source, folder)}")
