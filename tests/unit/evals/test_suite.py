"""Suites as data: what they say, what they may not say, and their hash."""

from pathlib import Path

import pytest

from evals import SuiteError, load_suite, suite_names

TOML = """
tasks = ["stops"]
max_tokens = 8
[[metric]]
name = "stops"
direction = "higher"
floor = 0.5
tolerance = 0.1
min_n = 2
"""
CASES = '{"id": "a", "prompt": "One?"}\n{"id": "b", "messages": [{"role": "user", "content": "Two?"}]}\n'


def write(root: Path, toml: str = TOML, cases: str = CASES, name: str = "small") -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "suite.toml").write_text(toml)
    (folder / "cases.jsonl").write_text(cases)
    return root


def test_a_suite_reads_its_metrics_and_cases(tmp_path: Path) -> None:
    suite = load_suite("small", write(tmp_path))
    assert [case.messages for case in suite.cases] == [
        ({"role": "user", "content": "One?"},),
        ({"role": "user", "content": "Two?"},),
    ]
    metric = suite.metrics[0]
    assert (metric.direction, metric.floor, metric.tolerance, metric.min_n) == ("higher", 0.5, 0.1, 2)
    assert metric.required
    assert suite.temperature == 0.0
    assert suite_names(tmp_path) == ("small",)


def test_the_hash_changes_with_any_case_or_rule_and_with_nothing_else(tmp_path: Path) -> None:
    first = load_suite("small", write(tmp_path)).hash
    assert load_suite("small", write(tmp_path, TOML + "\n# a remark\n", CASES + "\n")).hash == first
    changed = [
        load_suite("small", write(tmp_path, cases=CASES.replace("Two?", "Three?"))).hash,
        load_suite("small", write(tmp_path, TOML.replace("floor = 0.5", "floor = 0.4"))).hash,
        load_suite("small", write(tmp_path, TOML.replace("max_tokens = 8", "max_tokens = 9"))).hash,
    ]
    assert len({first, *changed}) == 4


@pytest.mark.parametrize(
    ("toml", "cases", "message"),
    [
        (TOML.replace('"higher"', '"up"'), CASES, "direction 'up'"),
        (TOML.replace("max_tokens = 8", ""), CASES, "'max_tokens' is missing"),
        ("tasks = [", CASES, "suite.toml"),
        (TOML, CASES + '{"id": "a", "prompt": "Again?"}\n', "cases.jsonl:3: the id 'a' is used twice"),
        (TOML, '{"id": "a"}\n', "exactly one of 'prompt' and 'messages'"),
        (TOML, "nonsense\n", "cases.jsonl:1: not JSON"),
        (TOML, "\n", "holds no case"),
    ],
)
def test_a_malformed_suite_is_refused_with_the_place(
    tmp_path: Path, toml: str, cases: str, message: str
) -> None:
    with pytest.raises(SuiteError, match=message):
        load_suite("small", write(tmp_path, toml, cases))


def test_an_unknown_suite_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"no suite 'big'.*small"):
        load_suite("big", write(tmp_path))


def test_the_suites_that_ship_are_whole() -> None:
    assert suite_names() == ("brevity", "regression")
    brevity, regression = load_suite("brevity"), load_suite("regression")
    assert len(brevity.cases) == 60
    assert len(regression.cases) >= 40
    assert all(case.expect and case.language == "en" for case in regression.cases)
    assert {metric.name for metric in regression.metrics} == {"facts", "language", "stops"}
    for suite in (brevity, regression):
        assert all(metric.required and metric.min_n <= len(suite.cases) for metric in suite.metrics)
