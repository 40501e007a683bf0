"""Adapter paths: inside the roots or refused, without a word on what exists outside."""

from pathlib import Path

import pytest

from lora.errors import AdapterNotFound, AdapterPathRefused
from lora.paths import resolve_adapter_path


def _adapter(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / name).write_text("{}")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    _adapter(tmp_path / "outside")
    root = tmp_path / "root"
    _adapter(root / "team" / "v1")
    return root


def test_relative_and_absolute_paths_inside_a_root_resolve(root: Path, tmp_path: Path) -> None:
    expected = (root / "team" / "v1").resolve()
    assert resolve_adapter_path("team/v1", [tmp_path / "empty", root]) == expected
    assert resolve_adapter_path(str(root / "team" / "v1"), [root]) == expected


def test_a_link_that_stays_inside_resolves_to_its_target(root: Path) -> None:
    (root / "latest").symlink_to(root / "team" / "v1")
    assert resolve_adapter_path("latest", [root]) == (root / "team" / "v1").resolve()


def test_files_linked_to_another_place_inside_the_root_are_accepted(root: Path) -> None:
    folder = root / "snapshot"
    folder.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / name).symlink_to(root / "team" / "v1" / name)
    assert resolve_adapter_path("snapshot", [root]) == folder.resolve()


@pytest.mark.parametrize(
    "path",
    [
        "../outside",
        "../absent",
        "team/../../outside",
        "team/../team/v1",
        "/etc",
        "/absent",
        "{tmp}/outside",
        "{tmp}/absent",
        "{tmp}/rooted",
        "http://example.com/a",
        "s3://bucket/a",
        "file:///etc",
        "",
        "  ",
        "a\0b",
        "n" * 5000,
        "out-link",
        "dangling-link",
        "loop",
        "stolen",
    ],
)
def test_everything_else_is_refused_with_one_message(root: Path, tmp_path: Path, path: str) -> None:
    (root / "out-link").symlink_to(tmp_path / "outside")
    (root / "dangling-link").symlink_to(tmp_path / "absent")
    (root / "loop").symlink_to(root / "loop")
    (root / "stolen").mkdir()
    (root / "stolen" / "adapter_config.json").symlink_to(tmp_path / "outside" / "adapter_config.json")
    asked = path.replace("{tmp}", str(tmp_path))
    with pytest.raises(AdapterPathRefused) as caught:
        resolve_adapter_path(asked, [root])
    said, _, rest = str(caught.value).partition(" is not allowed: ")
    assert said.startswith(f"adapter path {asked!r}"[:100])
    assert rest == "give a folder inside one of the adapter roots"


def test_an_absent_folder_or_file_inside_a_root_is_not_found(root: Path) -> None:
    with pytest.raises(AdapterNotFound, match="no adapter at 'team/v2': the folder is absent"):
        resolve_adapter_path("team/v2", [root])
    (root / "team" / "v1" / "adapter_config.json").unlink()
    with pytest.raises(AdapterNotFound, match=r"adapter_config\.json is absent"):
        resolve_adapter_path("team/v1", [root])


def test_without_roots_nothing_is_allowed(root: Path) -> None:
    with pytest.raises(AdapterPathRefused):
        resolve_adapter_path(str(root / "team" / "v1"), [])
