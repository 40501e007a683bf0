"""Who owns a data folder, and what others are told of it: no service is started here."""

import fcntl
import json
import os
import socket
from pathlib import Path

import pytest

from noria.errors import InstanceError, InstanceRunning, ModelSourceError, NotRunning
from noria.instance import running, running_url, state_of
from noria.ownership import owned, owner_of
from noria.settings import load

STATE = {"pid": 1, "url": "http://127.0.0.1:1/v1", "started_at": 0.0}


def hold(data: Path) -> None:
    """Start the platform on `data` with a model that does not exist: it ends once it owns the folder."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    overrides = {("data",): data, ("server", "port"): port}
    settings = load(overrides=overrides, models=(f"m={data}/nowhere",), environment={})
    with running(settings, lambda line: None):
        raise AssertionError("a model is missing")


def test_what_a_killed_owner_left_is_gone_once_the_next_one_starts(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps(STATE))
    (tmp_path / "instance.lock").touch()
    assert state_of(tmp_path) is None
    with pytest.raises(ModelSourceError, match="nowhere"):
        hold(tmp_path)
    assert not (tmp_path / "state.json").exists()
    assert (tmp_path / "adapters").is_dir()  # where the admin API looks for folders


def test_the_state_of_an_owner_is_read_though_another_version_wrote_it(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps(STATE | {"more": 1}))
    with (tmp_path / "instance.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("1")
        lock.flush()
        state = state_of(tmp_path)
        with pytest.raises(InstanceRunning, match="noria down"):
            hold(tmp_path)
    assert state is not None
    assert state.url == STATE["url"]
    assert (tmp_path / "state.json").exists()


@pytest.mark.parametrize("below", ["file", "file/data"])
def test_a_data_folder_that_cannot_be_made_is_told_in_a_line(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InstanceError, match="cannot be made"):
        hold(tmp_path / below)
    assert state_of(tmp_path / below) is None
    with pytest.raises(NotRunning):
        running_url(load(overrides={("data",): tmp_path / below}, environment={}))


def test_an_owner_is_known_before_it_serves_and_until_it_is_gone(tmp_path: Path) -> None:
    assert owner_of(tmp_path) is None
    with owned(tmp_path):
        assert owner_of(tmp_path) == os.getpid()
        assert state_of(tmp_path) is None
        with pytest.raises(InstanceRunning), owned(tmp_path):
            raise AssertionError("a second owner")
    assert owner_of(tmp_path) is None


def test_the_pid_of_an_earlier_owner_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "instance.lock").write_text("123456789")
    assert owner_of(tmp_path) is None
    with owned(tmp_path):
        assert owner_of(tmp_path) == os.getpid()
