import json
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.batches.lines import MAX_PROBLEMS, Checked, check_lines, read_line

URL = "/v1/completions"
BOUND = 1000


def line(custom_id: str, **body: Any) -> bytes:
    asked = {"custom_id": custom_id, "method": "POST", "url": URL, "body": {"model": "m", **body}}
    return json.dumps(asked).encode()


@pytest.fixture
def file() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as made:
        yield made


def check(file: IO[bytes], content: bytes) -> Checked:
    file.seek(0)
    file.truncate()
    file.write(content)
    return check_lines(file, URL, BOUND)


def test_lines_are_found_again_by_their_places(file: IO[bytes]) -> None:
    content = b"\n".join([line("a", n=1), b"", line("bé", n=2), b" \t", line("c", n=3)])
    checked = check(file, content)
    assert checked.problems == []
    assert [(each.number, each.custom_id) for each in checked.lines] == [(1, "a"), (3, "bé"), (5, "c")]
    assert [read_line(file, each).body["n"] for each in reversed(checked.lines)] == [3, 2, 1]


def test_the_model_is_told_where_it_is_one(file: IO[bytes]) -> None:
    assert check(file, line("a") + b"\n" + line("b")).model == "m"
    assert check(file, line("a") + b"\n" + line("b", model="other")).model is None


def test_a_line_over_the_bound_is_a_problem_and_the_next_one_is_read(file: IO[bytes]) -> None:
    fits = line("a")
    fits = line("a", prompt="x" * (BOUND - len(fits) - len(', "prompt": ""')))
    assert len(fits) == BOUND
    assert check(file, fits + b"\n" + line("b")).problems == []
    checked = check(file, fits + b" \n" + b"x" * 5000 + b"\n" + line("b"))
    assert [(each.line, each.code) for each in checked.problems] == [
        (1, "invalid_json_line"),
        (2, "invalid_json_line"),
    ]
    assert "1000 bytes allowed" in checked.problems[0].message
    assert [(each.number, each.custom_id) for each in checked.lines] == [(3, "b")]


def test_problems_are_told_up_to_a_bound(file: IO[bytes]) -> None:
    checked = check(file, b"x\n" * (MAX_PROBLEMS + 50))
    assert len(checked.problems) == MAX_PROBLEMS
    assert "the line is not valid JSON" in checked.problems[0].message


def test_more_lines_than_are_allowed(file: IO[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.batches.lines.MAX_LINES", 2)
    assert check(file, line("a") + b"\n" + line("b") + b"\n\n").problems == []
    (problem,) = check(file, b"\n".join([line("a"), line("b"), line("c")])).problems
    assert (problem.code, problem.line) == ("too_many_requests", None)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), max_size=8))
def test_whatever_the_names_each_is_there_once(names: list[str]) -> None:
    with tempfile.TemporaryFile() as file:
        checked = check(file, b"\n".join(map(line, names)))
        kept = [each.custom_id for each in checked.lines]
        assert kept == list(dict.fromkeys(names))
        doubled = [each for each in checked.problems if each.code == "duplicate_custom_id"]
        assert len(doubled) == len(names) - len(kept)
