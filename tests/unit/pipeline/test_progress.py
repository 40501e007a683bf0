"""Events between the trainer process and its parent: one JSON object a line, always valid JSON."""

import io
import json

import pytest

from pipeline.errors import TrainingFailed
from pipeline.progress import EventStream, parse_event


def test_an_event_arrives_as_it_was_sent() -> None:
    pipe = io.StringIO()
    EventStream(pipe).send("step", step=1, steps=2, loss=0.5)
    event = parse_event(pipe.getvalue())
    assert event.name == "step"
    assert event.figures == {"step": 1, "steps": 2, "loss": 0.5}


def test_a_figure_that_is_not_finite_travels_as_null() -> None:
    pipe = io.StringIO()
    EventStream(pipe).send("step", loss=float("nan"), grad_norm=float("inf"))
    assert json.loads(pipe.getvalue()) == {"event": "step", "loss": None, "grad_norm": None}


@pytest.mark.parametrize("line", ["Loading weights: 100%", "[1]", "{}"])
def test_a_line_that_is_no_event_is_a_failure_that_shows_it(line: str) -> None:
    with pytest.raises(TrainingFailed, match="no event"):
        parse_event(line)
