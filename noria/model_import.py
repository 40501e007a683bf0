"""What `noria model import` does: a source into a folder, with a bar while it goes on."""

from __future__ import annotations

from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from noria.console import err
from noria.errors import ModelSourceError
from noria.hub import HubSource, fetch


def import_source(source: str, folder: Path) -> Path:
    """Raises ModelSourceError for what is neither a GGUF file nor a repository of the hub."""
    if Path(source).is_file():
        return _import_gguf(Path(source), folder)
    if (repository := HubSource.parse(source)) is not None:
        return fetch(repository, folder, err.print)
    raise ModelSourceError(
        f"{source!r} is neither a GGUF file, nor org/repo or org/repo@revision of the Hugging Face hub"
    )


def _import_gguf(file: Path, folder: Path) -> Path:
    from engine.importer import import_gguf

    columns = (TextColumn(file.name), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(file.name, total=None)
        return import_gguf(
            file, folder, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )
