"""Base digests: content decides, the cache beside the folder only saves time."""

import json
import os
from pathlib import Path

import pytest

from lora.digest import base_digest, check_digest, is_digest
from lora.errors import InvalidDigest


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_digest_is_stable_and_ignores_the_folder_name_and_other_files(model: Path) -> None:
    before = base_digest(model)
    assert is_digest(before)
    (model / "README.md").write_text("about")
    renamed = model.rename(model.with_name("other"))
    assert base_digest(renamed) == before


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_digest_follows_content_once_the_file_has_changed(model: Path, name: str) -> None:
    before = base_digest(model)
    (model / name).write_bytes(b"{ }")
    assert base_digest(model) != before


def test_the_cache_is_used_while_sizes_and_times_stay(model: Path) -> None:
    before = base_digest(model)
    path = model / "model.safetensors"
    stat = path.stat()
    path.write_bytes(b"WEIGHTS")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert base_digest(model) == before
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert base_digest(model) != before


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"files": 1, "digest": "x"}'])
def test_a_broken_cache_is_ignored(model: Path, content: str) -> None:
    before = base_digest(model)
    cache = model.parent / ".model.digest.json"
    cache.write_text(content)
    assert base_digest(model) == before
    assert json.loads(cache.read_text())["digest"] == before


def test_a_parent_that_cannot_be_written_costs_only_time(model: Path) -> None:
    before = base_digest(model)
    cache = model.parent / ".model.digest.json"
    cache.unlink()
    cache.mkdir()
    assert base_digest(model) == before
    assert [path.name for path in model.parent.iterdir() if path.suffix == ".tmp"] == []


def test_a_folder_without_weights_is_an_error(model: Path) -> None:
    (model / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="no safetensors file"):
        base_digest(model)


@pytest.mark.parametrize("text", ["", "sha256:", "sha256:" + "A" * 64, "md5:" + "a" * 64, "../x", "a" * 64])
def test_text_that_is_no_digest_is_refused(text: str) -> None:
    with pytest.raises(InvalidDigest, match="allowed: 'sha256:' and 64 hexadecimal digits"):
        check_digest(text)
