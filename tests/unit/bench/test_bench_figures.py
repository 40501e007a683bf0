"""Percentiles, figures of a run, medians of runs, and how they are printed."""

import json
import math
from pathlib import Path

import pytest

from bench.compare import ratio, table
from bench.errors import NoFigures
from bench.figures import Figures, Outcome, medians, percentile, summarise
from bench.loads import Load
from bench.measured import Measured
from bench.report import markdown, short, write_json


def outcome(sent: float, *arrivals: float, error: str | None = None) -> Outcome:
    ended = arrivals[-1] if arrivals else sent
    return Outcome(sent, ended, arrivals, 8, len(arrivals), error)


def figures(tokens_a_second: float) -> Figures:
    """A run of four tokens, the first after half of the time."""
    step = 4 / tokens_a_second / 8
    return summarise([outcome(0.0, 4 * step, 5 * step, 6 * step, 8 * step)])


def test_percentiles_are_linear_between_neighbours() -> None:
    assert percentile([3.0, 1.0, 2.0, 4.0], 50) == 2.5
    assert percentile([3.0, 1.0, 2.0, 4.0], 0) == 1.0
    assert percentile([3.0, 1.0, 2.0, 4.0], 100) == 4.0
    assert percentile([0.0, 10.0], 95) == pytest.approx(9.5)
    assert percentile([7.0], 99) == 7.0
    assert math.isnan(percentile([], 50))


def test_figures_of_a_run() -> None:
    found = summarise([outcome(10.0, 10.5, 10.6, 10.9), outcome(10.2, 11.2, 11.4, 12.0)])
    assert found.requests == 2
    assert found.output_tok_s == pytest.approx(6 / 2.0)
    assert found.ttft_p50_ms == pytest.approx(750)
    assert found.tpot_p50_ms == pytest.approx((200 + 400) / 2)
    assert found.gap_p95_ms == pytest.approx(300 + 0.95 * 300)
    assert (found.prompt_tokens, found.output_tokens, found.errors) == (8, 3, 0)


def test_failed_requests_are_counted_and_left_out() -> None:
    found = summarise([outcome(0.0, 1.0, 2.0), outcome(0.0, error="HTTP 500")])
    assert (found.requests, found.errors, found.wall_s) == (1, 1, 2.0)


def test_a_run_without_a_good_request_has_no_figures() -> None:
    with pytest.raises(NoFigures, match="no request of 1 was answered: HTTP 500"):
        summarise([outcome(0.0, error="HTTP 500")])


def test_a_single_token_has_no_time_per_token() -> None:
    assert outcome(0.0, 1.0).tpot_s is None
    assert math.isnan(summarise([outcome(0.0, 1.0)]).tpot_p50_ms)


def test_medians_are_taken_figure_by_figure() -> None:
    found = medians([figures(10.0), figures(30.0), figures(20.0)])
    assert found.output_tok_s == pytest.approx(20.0)
    assert found.wall_s == pytest.approx(0.2)


def test_no_failed_request_is_lost_among_medians() -> None:
    broken = summarise([outcome(0.0, 1.0, 2.0), outcome(0.0, error="HTTP 500")])
    found = medians([figures(10.0), figures(10.0), broken])
    assert found.errors == 1
    assert short(found).endswith(", 1 FAILED")
    assert "FAILED" not in short(figures(10.0))


def test_ratios_are_of_the_same_round() -> None:
    load = Load(streams=1, requests=1)
    mine = Measured("noria", load, [figures(rate) for rate in (10.0, 40.0, 90.0)], [30.0, 31.0, 32.0])
    other = Measured("peer", load, [figures(rate) for rate in (10.0, 20.0, 30.0)], [30.0, 29.0, 28.0])
    assert ratio(mine, other) == pytest.approx(2.0)
    header, _, row = table([[mine, other]]).splitlines()
    assert "noria / peer" in header
    assert "| 2.00 | 31, 29 |" in row
    assert row.startswith("| 1 stream, 128/128 | 40.0 tok/s, TTFT 50 ms")


def test_markdown_has_one_line_a_row() -> None:
    assert markdown(["a", "b"], [[1, "x"], [2, "y"]]).splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| 1 | x |",
        "| 2 | y |",
    ]


def test_json_has_the_machine_and_null_for_what_does_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "new" / "figures.json"
    write_json(path, {"runs": [{"tpot": math.nan, "ttft": 1.5}]})
    written = json.loads(path.read_text())
    assert written["runs"] == [{"tpot": None, "ttft": 1.5}]
    assert written["machine"]["cores"] >= 1
