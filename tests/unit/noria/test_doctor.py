"""The doctor finds what a machine lacks without starting anything."""

import socket
from pathlib import Path

from noria.doctor import examine, port_is_free
from noria.ownership import owned
from noria.settings import Settings, load


def settings(tmp_path: Path, port: int = 8000) -> Settings:
    overrides = {("data",): tmp_path / "not" / "yet", ("server", "port"): port}
    return load(overrides=overrides, environment={})


def test_every_finding_has_a_name_and_a_detail(tmp_path: Path) -> None:
    findings = examine(settings(tmp_path))
    names = [finding.name for finding in findings]
    assert len(set(names)) == len(names)
    assert {"python", "torch", "disk", "port", "model smollm2-135m"} <= set(names)
    assert all(finding.detail for finding in findings)


def test_a_taken_port_is_found(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not port_is_free("127.0.0.1", port)
        found = {finding.name: finding for finding in examine(settings(tmp_path, port))}
        assert not found["port"].ok
        assert str(port) in found["port"].detail
    assert port_is_free("127.0.0.1", port)


def test_the_port_of_an_instance_that_is_up_is_not_missing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        here = settings(tmp_path, taken.getsockname()[1])
        with owned(here.data):
            assert {finding.name: finding for finding in examine(here)}["port"].ok
        assert not {finding.name: finding for finding in examine(here)}["port"].ok


def test_a_model_source_that_does_not_exist_is_missing(tmp_path: Path) -> None:
    wrong = load(models=(f"mine={tmp_path}/nowhere",), environment={})
    found = {finding.name: finding for finding in examine(wrong)}
    assert not found["model mine"].ok
    assert "nowhere does not exist" in found["model mine"].detail


def test_a_store_that_does_not_answer_is_found(tmp_path: Path) -> None:
    found = {finding.name: finding for finding in examine(settings(tmp_path))}
    assert found["adapter store"].ok
    (tmp_path / "file").touch()
    wrong = load(overrides={("store", "url"): (tmp_path / "file").as_uri()}, environment={})
    found = {finding.name: finding for finding in examine(wrong)}
    assert not found["adapter store"].ok
    assert f"{tmp_path}/file: the store is not available" in found["adapter store"].detail


def test_a_file_in_the_place_of_the_data_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = {
        finding.name: finding
        for finding in examine(load(overrides={("data",): tmp_path / "file"}, environment={}))
    }
    assert not found["data folder"].ok
