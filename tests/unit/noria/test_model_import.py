"""`noria model import`: which source goes which way."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from noria import model_import
from noria.cli import app
from noria.errors import ModelSourceError
from noria.hub import fetch
from noria.model_import import import_source
from tests.unit.engine.gguf_files import save_model, write_model


def test_a_gguf_file_becomes_a_folder(tmp_path: Path) -> None:
    save_model("Llama", tmp_path / "source")
    file = write_model(tmp_path / "m.gguf", "Llama", tmp_path / "source")
    done = CliRunner().invoke(app, ["model", "import", str(file), str(tmp_path / "out")])
    assert done.exit_code == 0
    assert done.stdout.strip() == str(tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_an_id_goes_to_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_import, "fetch", partial(fetch, endpoint="http://127.0.0.1:1"))
    with pytest.raises(ModelSourceError, match=r"org/repo@v1 (cannot be fetched|is not here yet)"):
        import_source("org/repo@v1", tmp_path / "out")


def test_anything_else_is_told_what_is_accepted(tmp_path: Path) -> None:
    with pytest.raises(ModelSourceError, match=r"'/no/file.gguf' is neither a GGUF file, nor org/repo"):
        import_source("/no/file.gguf", tmp_path / "out")
