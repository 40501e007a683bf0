"""Joining a Ray cluster: what Ray changes in this process is put right again."""

import signal
from pathlib import Path
from typing import Any

import pytest
import ray

from noria.cluster import joined
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
