"""`noria adapters` against a running instance: what it prints, and one line with the reason when refused."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from noria.cli import app
from noria.errors import AdminRefused, NotRunning

Noria = Callable[..., Result]
_names = itertools.count()


@pytest.fixture
def noria(served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Noria:
    """The command in this process, with the served platform as its instance."""
    monkeypatch.setattr("noria.admin_client.running_url", lambda settings: f"{served.url}/v1")
    environment = {"NORIA_DATA": str(tmp_path), "NORIA_ADMIN_KEY": "root", "COLUMNS": "200"}
    return lambda *words: CliRunner().invoke(app, ["adapters", *words], env=environment)


def test_an_adapter_is_loaded_shown_pinned_and_unloaded(served: Any, noria: Noria) -> None:
    name = f"team/by hand-{next(_names)}"
    path = served.make_adapter(f"command-{next(_names)}", 400)
    loaded = noria("load", name, path, "--pin")
    assert loaded.exit_code == 0, loaded.output
    assert f"{name}: sha256:" in loaded.output
    assert "modules: 1; replicas: replica-0, replica-1" in loaded.output
    shown = json.loads(noria("show", name, "--json").stdout)
    assert (shown["id"], shown["pinned"], len(shown["residency"])) == (name, True, 2)
    table = noria("show", name).stdout
    assert "replica-1" in table
    assert "ready" in table
    assert noria("unpin", name).stdout == f"{name}: not pinned\n"
    assert noria("pin", name).stdout == f"{name}: pinned\n"
    replaced = noria("load", name, served.make_adapter(f"command-{next(_names)}", 401), "--replace", "--json")
    assert json.loads(replaced.stdout)["digest"] != shown["digest"]
    assert "removed successfully" in noria("unload", name).stdout


def test_a_refusal_is_one_line_with_the_reason_and_its_code(noria: Noria) -> None:
    for words, reason in (
        (("load", "x", "nothing-there"), r"no adapter at 'nothing-there'.*\(adapter_not_found\)"),
        (("unload", "nobody"), r"'nobody' cannot be found.*\(adapter_not_found\)"),
        (("show", "nobody"), r"\(adapter_not_found\)"),
    ):
        error = noria(*words).exception
        assert isinstance(error, AdminRefused)
        assert re.search(reason, str(error))
        assert "\n" not in str(error)


def test_without_an_instance_the_command_says_so(noria: Noria, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.admin_client.running_url", lambda settings: "http://127.0.0.1:9/v1")
    assert isinstance(noria("show", "x").exception, NotRunning)
