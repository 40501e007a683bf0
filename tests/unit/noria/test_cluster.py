"""Joining a Ray cluster: what Ray changes in this process is put right again."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import ray

from noria.cluster import app_config, joined
from noria.settings import load


def test_a_request_to_terminate_still_reaches_whoever_asked_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def init(**_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "")
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with joined(load(overrides={("data",): tmp_path}, environment={})):
            assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_adapters_may_name_a_model_as_the_settings_and_its_folder_say(tmp_path: Path) -> None:
    record = {"repo": "org/llama", "revision": "v1", "commit": "0123"}
    (tmp_path / "noria_source.json").write_text(json.dumps(record))
    (tmp_path / "noria.toml").write_text(
        f'models = [{{id = "m", source = "{tmp_path}", known_as = ["other/name"]}}]'
    )
    config = app_config(load(tmp_path / "noria.toml", environment={}), "postgresql://", {"m": tmp_path})
    assert config.models[0].aliases == ("other/name", "org/llama", "org/llama@v1", "org/llama@0123")
