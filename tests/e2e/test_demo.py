"""The whole demonstration on the real model: about ten minutes, so not part of every run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def turn(data: Path, port: int) -> dict[str, Any]:
    words = [sys.executable, "-m", "noria", "demo", "--data", str(data), "--port", str(port)]
    done = subprocess.run(words, check=False, env={**os.environ, "PYTHONWARNINGS": "default"})
    assert done.returncode == 0
    summary: dict[str, Any] = json.loads((data / "demo" / "summary.json").read_text())
    return summary


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_wheel_turns_on_a_new_folder_and_again_on_a_used_one(tmp_path: Path, free_tcp_port: int) -> None:
    for _ in range(2):
        summary = turn(tmp_path / "data", free_tcp_port)
        assert summary["ok"]
        assert all(stage["ok"] for stage in summary["stages"])
        behaviour = summary["behaviour"]
        assert behaviour["adapter"]["low"] > behaviour["base"]["high"]
        assert summary["adapter_digest"].startswith("sha256:")
