"""The file of the local kill switch: whole, shared by its writers, and read even where it is damaged."""

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lora.errors import InvalidDigest, StopsUnusable
from lora.stops import StopsFile

A, B = ("sha256:" + letter * 64 for letter in "ab")
DAMAGED = ["", "{", "[]", "{}", '{"digests": 1}', '{"digests": [1]}', '{"digests": ["v1"]}', "\xff"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stops.json"


def test_what_is_added_is_read_by_another_until_it_is_removed(path: Path) -> None:
    stops, other = StopsFile(path), StopsFile(path)
    assert other.read() == frozenset()
    stops.add(A)
    stops.add(B)
    stops.add(A)
    assert other.read() == other.latest() == {A, B}
    assert stops.remove(A)
    assert not stops.remove(A)
    assert other.read() == other.latest() == {B}
    assert list(path.parent.iterdir()) == [path]


def test_writers_at_the_same_time_lose_no_stop(path: Path) -> None:
    digests = [f"sha256:{number:064x}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda digest: StopsFile(path).add(digest), digests))
    assert StopsFile(path).read() == set(digests)


def test_what_is_no_digest_is_not_added(path: Path) -> None:
    with pytest.raises(InvalidDigest, match="'v1'"):
        StopsFile(path).add("v1")
    assert not path.exists()


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_refused_and_left_as_it_is(path: Path, content: str) -> None:
    path.write_text(content, encoding="latin-1")
    stops = StopsFile(path)
    for use in (stops.read, lambda: stops.add(A), lambda: stops.remove(A)):
        with pytest.raises(StopsUnusable, match=r"stops\.json"):
            use()
    assert path.read_text(encoding="latin-1") == content
    assert stops.latest() == frozenset()


def test_while_the_file_is_damaged_the_last_stops_hold_and_the_log_says_so_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stops = StopsFile(path)
    stops.add(A)
    assert stops.latest() == {A}
    for round_ in (1, 2):
        path.write_text("{")
        assert [stops.latest() for _ in range(3)] == [{A}] * 3
        assert [record.levelno for record in caplog.records] == [logging.ERROR] * round_
        path.write_text(json.dumps({"digests": [A]}))
        assert stops.latest() == {A}
    path.unlink()
    assert stops.latest() == frozenset()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    stops = StopsFile(tmp_path / "nowhere" / "stops.json")
    assert stops.read() == frozenset()
    with pytest.raises(StopsUnusable, match="No such file or directory"):
        stops.add(A)
