"""The options that several commands share, and the settings they lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noria.settings import Settings, load

Config = Annotated[Path | None, typer.Option("--config", help="Settings file (TOML).", show_default=False)]
Data = Annotated[Path | None, typer.Option("--data", help="Data folder.", show_default=".noria")]
Host = Annotated[str | None, typer.Option("--host", help="Address to listen on.", show_default="127.0.0.1")]
Port = Annotated[int | None, typer.Option("--port", help="Port to listen on.", show_default="8000")]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="ID=SOURCE",
        help="Base model: the embedded model's name, a Hugging Face folder, a GGUF file or "
        "org/repo[@revision] of the hub. Repeatable.",
        show_default="smollm2-135m=smollm2-135m",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Why = Annotated[
    str | None,
    typer.Option(
        "--override", metavar="REASON", help="Pass a closed gate; the reason is recorded for audit."
    ),
]


def settings(
    config: Path | None,
    data: Path | None,
    host: str | None = None,
    port: int | None = None,
    models: list[str] | None = None,
) -> Settings:
    """Load the settings with what the command line says on top."""
    overrides = {("data",): data, ("server", "host"): host, ("server", "port"): port}
    return load(config, overrides, tuple(models or ()))
