"""`noria store`: the adapter store itself, whatever the registry says."""

from __future__ import annotations

from typing import Annotated

import typer

from lora.store import AdapterStore, open_store
from noria import options
from noria.console import as_json, out
from noria.settings import Settings

app = typer.Typer(help="The adapter store: what is in it, and its upkeep.", no_args_is_help=True)


@app.command("list")
def list_digests(
    config: options.Config = None, data: options.Data = None, json: options.Json = False
) -> None:
    """List the digests of the adapters that are complete."""
    digests = _opened(options.settings(config, data)).list()
    if json:
        as_json(digests)
        return
    for digest in digests:
        out.print(digest, soft_wrap=True)


@app.command()
def sweep(
    hours: Annotated[float, typer.Option(help="Only what is that old.", min=1.0)] = 24.0,
    config: options.Config = None,
    data: options.Data = None,
) -> None:
    """Remove what writers that died have left half done."""
    store = _opened(options.settings(config, data))
    removed = store.sweep(hours * 3600)
    out.print(f"{store.url}: abandoned pieces removed: {removed}", soft_wrap=True)


def _opened(settings: Settings) -> AdapterStore:
    return open_store(settings.store_url, settings.s3)
