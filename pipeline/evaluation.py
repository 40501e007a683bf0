"""Evaluation: run suites against one subject through the served endpoint and record what they found.

A subject is an adapter (asked by its own id) or the base model. The endpoint's answers carry a fingerprint of
what served them; a run whose answers came from anything else than the subject is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from db import evals as rows
from db.canonical import prompt_hash
from db.database import Database
from db.rows import EvalCaseRow, EvalMetricRow, EvalResultRow
from evals import Completer, Suite, SuiteResult, load_suite, run_suite
from pipeline.errors import EvaluationVoid, WrongSubject

Progress = Callable[[str, int, int], None]
"""Called with (suite, cases done, cases in all)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is measured. `digest` is an adapter's digest or "base"; `model` the name to ask for."""

    digest: str
    model: str
    base_digest: str


def evaluate(
    db: Database,
    completer: Completer,
    subject: Subject,
    suites: Sequence[str | Suite],
    *,
    progress: Progress | None = None,
) -> dict[str, SuiteResult]:
    """Run each suite, register its version and rules, and store results and cases as a new attempt.

    Raises: EvaluationVoid when too much stayed unscored, WrongSubject when something else answered; in both
    cases nothing of that suite is stored.
    """
    results: dict[str, SuiteResult] = {}
    for item in suites:
        suite = load_suite(item) if isinstance(item, str) else item
        show = None if progress is None else _bound(progress, suite.name)
        result = run_suite(suite, completer, subject.model, progress=show)
        _require_valid(suite, result)
        _require_subject(subject, result)
        rows.register_suite(db, suite.name, suite.hash, len(suite.cases), _metrics(suite))
        rows.insert_results(db, _results(subject, result), _cases(suite, result))
        results[suite.name] = result
    return results


def _bound(progress: Progress, suite: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(suite, done, total)


def _require_valid(suite: Suite, result: SuiteResult) -> None:
    if not result.void:
        return
    metric = result.metric(result.void[0])
    allowed = next(spec.max_unscored for spec in suite.metrics if spec.name == metric.name)
    example = next((case.error for case in result.cases if case.error), None)
    raise EvaluationVoid(
        f"{suite.name}.{metric.name}", metric.unscored, metric.n + metric.unscored, allowed, example
    )


def _require_subject(subject: Subject, result: SuiteResult) -> None:
    """Every answer bears "<base digest, 12 hex>-<adapter digest, 12 hex, or base>"."""
    expected = f"{_short(subject.base_digest)}-{_short(subject.digest)}"
    for case in result.cases:
        if case.completion is not None and case.completion.served_by != expected:
            served = case.completion.served_by or "an endpoint that names none"
            raise WrongSubject(subject.model, expected, served)


def _short(digest: str) -> str:
    """The first 12 hex digits; "base" stays as it is."""
    return digest.removeprefix("sha256:")[:12]


def _metrics(suite: Suite) -> list[EvalMetricRow]:
    return [
        EvalMetricRow(
            suite=suite.name,
            metric=metric.name,
            direction=metric.direction,
            floor=metric.floor,
            tolerance=metric.tolerance,
            min_n=metric.min_n,
            max_unscored=metric.max_unscored,
            required=metric.required,
        )
        for metric in suite.metrics
    ]


def _results(subject: Subject, result: SuiteResult) -> list[EvalResultRow]:
    return [
        EvalResultRow(
            subject=subject.digest,
            base_digest=subject.base_digest,
            suite=result.suite,
            suite_hash=result.suite_hash,
            metric=metric.name,
            value=metric.value,
            low=metric.low,
            high=metric.high,
            n=metric.n,
            unscored=metric.unscored,
        )
        for metric in result.metrics
    ]


def _cases(suite: Suite, result: SuiteResult) -> list[EvalCaseRow]:
    prompts = {case.id: case.messages for case in suite.cases}
    return [
        EvalCaseRow(
            case_id=case.case_id,
            prompt_hash=prompt_hash(prompts[case.case_id]),
            completion=case.completion.text if case.completion else "",
            finish_reason=case.completion.finish_reason if case.completion else "error",
            scores=case.scores,
        )
        for case in result.cases
    ]
