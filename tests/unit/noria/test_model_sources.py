"""Model sources: what is accepted, and what a wrong one is told."""

from pathlib import Path

import pytest

from noria import models
from noria.errors import ModelSourceError
from noria.settings import ModelSettings


def test_a_folder_is_used_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    said: list[str] = []
    folder = models.prepare(ModelSettings(id="mine", source=str(tmp_path)), tmp_path / "data", said.append)
    assert folder == tmp_path
    assert said == []


def test_an_unusable_source_names_what_is_accepted(tmp_path: Path) -> None:
    with pytest.raises(ModelSourceError, match=r"'mine'.*nowhere.*config\.json.*\.gguf"):
        models.prepare(ModelSettings(id="mine", source=str(tmp_path / "nowhere")), tmp_path, print)


def test_a_missing_package_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_EMBEDDED_PACKAGE", "no_such_package_here")
    with pytest.raises(ModelSourceError, match="make setup"):
        models.embedded_gguf()


def test_the_embedded_model_is_found() -> None:
    assert models.embedded_gguf().suffix == ".gguf"
