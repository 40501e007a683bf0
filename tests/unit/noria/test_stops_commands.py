"""The commands of the kill switch: by id or digest, from files alone."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from db.rows import AdapterRow, RegistryRows
from lora.kept_rows import KeptRows
from noria import cli

V1, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64
ROW = AdapterRow(
    id="v1", digest=V1, base_model="tiny", endpoint="support", status="prod", traffic_pct=0.0,
    canary_start=None, loaded=False, pinned=False, store_uri="", config={}, bytes=1, parent=None,
    replaced=None, run_id=None, created_at=datetime(2026, 1, 1, tzinfo=UTC),
)  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    KeptRows(tmp_path / "cache" / "registry.json").write(
        RegistryRows(epoch=1, base_models=(), endpoints=(), adapters=(ROW,))
    )
    return tmp_path


def noria(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: Path, *words: str
) -> tuple[object, str, str]:
    monkeypatch.setattr(sys, "argv", ["noria", *words, "--data", str(data)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code, *capsys.readouterr()


def test_an_id_or_a_digest_is_stopped_listed_and_resumed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: Path
) -> None:
    for words in (["stop", "v1"], ["stop", OTHER]):
        assert noria(monkeypatch, capsys, data, *words)[0] == 0
    code, listed, _ = noria(monkeypatch, capsys, data, "stops", "--json")
    assert code == 0
    assert json.loads(listed) == [{"digest": V1, "adapters": ["v1"]}, {"digest": OTHER, "adapters": []}]
    for words in (["resume", V1], ["resume", OTHER]):
        assert noria(monkeypatch, capsys, data, *words)[0] == 0
    assert "stops: none" in noria(monkeypatch, capsys, data, "stops")[1]


@pytest.mark.parametrize(
    ("words", "said"), [(["stop", "v9"], "no adapter is called 'v9'"), (["resume", "v1"], "is not stopped")]
)
def test_what_cannot_be_done_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    data: Path,
    words: list[str],
    said: str,
) -> None:
    code, _, told = noria(monkeypatch, capsys, data, *words)
    assert code == 1
    assert said in told
    assert told.count("\n") == 1
