"""A running instance brings its embedded server back when it dies."""

from pathlib import Path

import psutil
import pytest

from noria import database
from noria.settings import load


class Enough(Exception):
    """Ends the watch, which never returns by itself."""


def test_a_killed_server_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(overrides={("data",): tmp_path / "data"}, environment={})
    server = database.embedded(settings)
    assert server is not None
    server.start()
    pid = int((server.cluster / "postmaster.pid").read_text().split("\n", 1)[0])
    process = psutil.Process(pid)
    process.kill()
    psutil.wait_procs([process], timeout=10)
    said: list[str] = []

    def report(line: str) -> None:
        said.append(line)

    looks = iter([None, None])

    def look(_: float) -> None:
        if next(looks, Enough) is Enough:
            raise Enough

    monkeypatch.setattr(database.time, "sleep", look)
    try:
        with pytest.raises(Enough):
            database.keep_database(settings, report)
        assert server.running()
        assert said == ["postgres: found dead, starting again"]
    finally:
        monkeypatch.undo()
        server.stop()
