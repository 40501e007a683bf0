"""Runs a suite: ask every case through a Completer, score each answer, reduce to metrics with bounds.

A value a task cannot score, and a case the endpoint failed on, is `unscored`: it is counted, never averaged,
never a zero and never a pass. It does not know who answers or where results go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evals.completer import Completer, Completion
from evals.errors import CompletionFailed, SuiteError
from evals.stats import Interval, mean_interval, wilson
from evals.suite import Case, Suite
from evals.tasks import get_task
from evals.tasks.base import Task

Progress = Callable[[int, int], None]
"""Called with (cases done, cases in all) as they are done, on the caller's thread."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case's answer and its scores; a score of None is unscored, `error` says why there is no answer."""

    case_id: str
    completion: Completion | None
    scores: Mapping[str, float | None]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class MetricResult:
    """One metric over a suite. value, low and high are None when nothing was scored.

    A mean of one score has a value and no bounds.
    """

    name: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    unscored: int


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """Everything one run of a suite found; `void` names the metrics of which too much stayed unscored."""

    suite: str
    suite_hash: str
    model: str
    metrics: tuple[MetricResult, ...]
    cases: tuple[CaseResult, ...]
    void: tuple[str, ...] = ()

    def metric(self, name: str) -> MetricResult:
        """The metric of that name. Raises: KeyError naming those there are."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise KeyError(f"{name!r}; the suite {self.suite!r} has {[m.name for m in self.metrics]}")


def run_suite(
    suite: Suite,
    completer: Completer,
    model: str,
    *,
    progress: Progress | None = None,
) -> SuiteResult:
    """Ask every case of `suite` to `model`, all at once. Case order does not depend on timing.

    Raises: UnknownTask; SuiteError when a declared metric belongs to none of the suite's tasks.
    """
    tasks = tuple(get_task(name) for name in suite.tasks)
    kinds = {metric: kind for task in tasks for metric, kind in task.metrics.items()}
    missing = [metric.name for metric in suite.metrics if metric.name not in kinds]
    if missing:
        raise SuiteError(f"suite {suite.name!r} declares {missing}, its tasks measure {sorted(kinds)}")

    def done(count: int) -> None:
        if progress is not None:
            progress(count, len(suite.cases))

    answers = completer.complete(
        [case.messages for case in suite.cases],
        model=model,
        max_tokens=suite.max_tokens,
        temperature=suite.temperature,
        done=done,
    )
    done(len(answers))
    cases = tuple(_scored(case, answer, tasks) for case, answer in zip(suite.cases, answers, strict=True))
    metrics = tuple(_reduce(metric.name, kinds[metric.name], cases) for metric in suite.metrics)
    return SuiteResult(suite.name, suite.hash, model, metrics, cases, _void(suite, metrics))


def _void(suite: Suite, metrics: tuple[MetricResult, ...]) -> tuple[str, ...]:
    limits = {spec.name: spec.max_unscored for spec in suite.metrics}
    return tuple(m.name for m in metrics if m.n == 0 or m.unscored > limits[m.name] * (m.n + m.unscored))


def _scored(case: Case, answer: Completion | CompletionFailed, tasks: tuple[Task, ...]) -> CaseResult:
    relevant = [task for task in tasks if task.applies(case)]
    if isinstance(answer, CompletionFailed):
        unscored: dict[str, float | None] = {name: None for task in relevant for name in task.metrics}
        return CaseResult(case.id, None, unscored, str(answer))
    scores: dict[str, float | None] = {}
    for task in relevant:
        scores.update(task.score(case, answer))
    return CaseResult(case.id, answer, scores)


def _reduce(name: str, kind: str, cases: tuple[CaseResult, ...]) -> MetricResult:
    asked = [case.scores[name] for case in cases if name in case.scores]
    values = [value for value in asked if value is not None and math.isfinite(value)]
    unscored = len(asked) - len(values)
    if not values:
        return MetricResult(name, None, None, None, 0, unscored)
    interval: Interval = wilson(sum(values), len(values)) if kind == "rate" else mean_interval(values)
    low, high = (interval.low, interval.high) if math.isfinite(interval.low) else (None, None)
    return MetricResult(name, interval.value, low, high, interval.n, unscored)
