"""Named queries: every file parses, names are unique, every query is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import db
from db import query

FOLDER = Path(db.__file__).parent
MODULES = sorted(path.stem for path in (FOLDER / "queries").glob("*.sql"))


@pytest.mark.parametrize("module", MODULES)
def test_every_named_query_is_used_and_every_used_one_is_named(module: str) -> None:
    named = set(query.load(module))
    source = (FOLDER / f"{module}.py").read_text()
    used = set(re.findall(r'_Q\["([a-z_]+)"\]', source)) | set(
        re.findall(r'_changed\(db, "([a-z_]+)"', source)
    )
    assert used == named


def test_a_query_keeps_its_text_without_the_head() -> None:
    assert query.load("registry")["epoch"] == b"SELECT epoch FROM serve.registry_epoch"


def test_a_file_with_a_name_twice_or_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "_FOLDER", tmp_path)
    (tmp_path / "twice.sql").write_text("-- a: x\nSELECT 1;\n-- a: y\nSELECT 2;\n")
    (tmp_path / "none.sql").write_text("SELECT 1;\n")
    with pytest.raises(ValueError, match="'a' twice"):
        query.load("twice")
    with pytest.raises(ValueError, match="no line"):
        query.load("none")
