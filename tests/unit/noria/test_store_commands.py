"""`noria store` on a folder."""

import json
import os
import sys
from pathlib import Path

import pytest

from noria import cli

DIGEST = "0" * 64


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Of an instance whose store holds one adapter, and what became of another long ago."""
    whole = tmp_path / "store" / "adapters" / DIGEST
    whole.mkdir(parents=True)
    (whole / "complete").touch()
    half = tmp_path / "store" / "adapters" / ".half.tmp"
    half.mkdir()
    os.utime(half, (0, 0))
    return tmp_path


def noria(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: Path, *words: str
) -> str:
    monkeypatch.setattr(sys, "argv", ["noria", "store", *words, "--data", str(data)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_list_shows_what_is_complete(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: Path
) -> None:
    assert noria(monkeypatch, capsys, data, "list").split() == [f"sha256:{DIGEST}"]
    assert json.loads(noria(monkeypatch, capsys, data, "list", "--json")) == [f"sha256:{DIGEST}"]


def test_sweep_removes_what_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: Path
) -> None:
    assert "removed: 1" in noria(monkeypatch, capsys, data, "sweep")
    assert "removed: 0" in noria(monkeypatch, capsys, data, "sweep")
    assert [folder.name for folder in (data / "store" / "adapters").iterdir()] == [DIGEST]
