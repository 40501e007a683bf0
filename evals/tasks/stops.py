"""Stops: the model ended its answer by itself, with something in it.

The rate falls when training has unlearnt the end-of-turn token: such a model writes until it is cut.
"""

from __future__ import annotations

from collections.abc import Mapping

from evals.completer import Completion
from evals.suite import Case
from evals.tasks.base import Kind


class Stops:
    """Metric: stops (rate)."""

    name = "stops"
    metrics: Mapping[str, Kind] = {"stops": "rate"}

    def applies(self, case: Case) -> bool:
        return True

    def score(self, case: Case, completion: Completion) -> Mapping[str, float | None]:
        return {"stops": float(completion.finish_reason == "stop" and bool(completion.text.strip()))}
