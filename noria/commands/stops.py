"""`noria stop`, `resume`, `stops`: the kill switch of this machine's gateways, without the database."""

from __future__ import annotations

from typing import Annotated

import typer

from lora.digest import is_digest
from lora.kept_rows import REGISTRY_FILE, KeptRows
from lora.stops import STOPS_FILE, StopsFile
from noria import options
from noria.console import as_json, out, table
from noria.errors import StopError
from noria.settings import Settings

app = typer.Typer()
Adapter = Annotated[str, typer.Argument(help="Adapter id, or digest (sha256:...).")]


@app.command()
def stop(adapter: Adapter, config: options.Config = None, data: options.Data = None) -> None:
    """Serve an adapter version no more on this machine: prod takes its place, or the base model."""
    settings = options.settings(config, data)
    digest = _digest(settings, adapter)
    _file(settings).add(digest)
    out.print(f"{adapter}: the gateways of this machine stop serving {digest}")


@app.command()
def resume(adapter: Adapter, config: options.Config = None, data: options.Data = None) -> None:
    """Take back `noria stop`."""
    settings = options.settings(config, data)
    digest = _digest(settings, adapter)
    if not _file(settings).remove(digest):
        raise StopError(f"{adapter} ({digest}) is not stopped on this machine; see noria stops")
    out.print(f"{adapter}: the gateways of this machine serve {digest} again")


@app.command()
def stops(config: options.Config = None, data: options.Data = None, json: options.Json = False) -> None:
    """List what is stopped on this machine."""
    settings = options.settings(config, data)
    ids = _ids(settings)
    found = {
        digest: sorted(name for name, of in ids.items() if of == digest)
        for digest in sorted(_file(settings).read())
    }
    if json:
        as_json([{"digest": digest, "adapters": names} for digest, names in found.items()])
        return
    table("stops", ("digest", "adapters"), ((digest, ", ".join(names)) for digest, names in found.items()))


def _file(settings: Settings) -> StopsFile:
    return StopsFile(settings.cache_root / STOPS_FILE)


def _ids(settings: Settings) -> dict[str, str]:
    """Digest of each adapter id, by the registry that the gateways last kept on this machine."""
    kept = KeptRows(settings.cache_root / REGISTRY_FILE).read()
    return {} if kept is None else {row.id: row.digest for row in kept[0].adapters}


def _digest(settings: Settings, adapter: str) -> str:
    if is_digest(adapter):
        return adapter
    if (digest := _ids(settings).get(adapter)) is None:
        raise StopError(
            f"no adapter is called {adapter!r} in {settings.cache_root / REGISTRY_FILE}, "
            "which the gateways of this machine keep; a digest (sha256:...) may be given"
        )
    return digest
