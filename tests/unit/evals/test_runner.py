"""Running a suite: order, progress, reduction, and what stays unscored."""

from collections.abc import Sequence

import pytest

from evals import (
    Case,
    Completion,
    CompletionFailed,
    Conversation,
    Done,
    MetricSpec,
    Suite,
    SuiteError,
    run_suite,
)

ENGLISH = "It is on the other side of the river."


class Scripted:
    """A Completer that answers from a table; None stands for an endpoint that fails."""

    def __init__(self, answers: dict[str, Completion | None]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, int, float]] = []

    def complete(
        self,
        conversations: Sequence[Conversation],
        *,
        model: str,
        max_tokens: int,
        temperature: float,
        done: Done,
    ) -> list[Completion | CompletionFailed]:
        made: list[Completion | CompletionFailed] = []
        for number, messages in enumerate(conversations, start=1):
            prompt = messages[-1]["content"]
            self.asked.append((prompt, model, max_tokens, temperature))
            made.append(self.answers[prompt] or CompletionFailed("503: no replica"))
            done(number)
        return made


def suite(
    prompts: Sequence[str], tasks: tuple[str, ...], metrics: tuple[str, ...], max_unscored: float = 0.1
) -> Suite:
    cases = tuple(Case(prompt, ({"role": "user", "content": prompt},), language="en") for prompt in prompts)
    specs = tuple(MetricSpec(name, "higher", None, 0.1, 1, max_unscored, True) for name in metrics)
    return Suite("small", tasks, 16, 0.0, specs, cases, "sha256:1")


def test_every_case_is_asked_as_the_suite_says_and_kept_in_order() -> None:
    prompts = [f"q{number}" for number in range(20)]
    completer = Scripted({prompt: Completion(ENGLISH, "stop", 9) for prompt in prompts})
    seen: list[tuple[int, int]] = []
    result = run_suite(
        suite(prompts, ("stops",), ("stops",)),
        completer,
        "some-model",
        progress=lambda done, total: seen.append((done, total)),
    )
    assert [case.case_id for case in result.cases] == prompts
    assert completer.asked == [(prompt, "some-model", 16, 0.0) for prompt in prompts]
    assert seen == [*((number, 20) for number in range(1, 21)), (20, 20)]
    assert result.metric("stops").value == 1.0
    assert result.void == ()


def test_a_mean_of_one_score_has_no_bounds() -> None:
    one = suite(["q"], ("brevity",), ("words",))
    metric = run_suite(one, Scripted({"q": Completion(ENGLISH, "stop", 9)}), "m").metric("words")
    assert (metric.value, metric.low, metric.high, metric.n) == (9.0, None, None, 1)


def test_a_rate_carries_its_wilson_bounds() -> None:
    answers: dict[str, Completion | None] = {
        f"q{number}": Completion(ENGLISH, "stop" if number < 5 else "length", 9) for number in range(20)
    }
    metric = run_suite(suite(list(answers), ("stops",), ("stops",)), Scripted(answers), "m").metric("stops")
    assert (metric.value, metric.n, metric.unscored) == (0.25, 20, 0)
    assert metric.low == pytest.approx(0.1119, abs=5e-5)
    assert metric.high == pytest.approx(0.4687, abs=5e-5)


def test_unscored_cases_are_counted_and_never_averaged() -> None:
    answers: dict[str, Completion | None] = {f"good{n}": Completion(ENGLISH, "stop", 9) for n in range(8)}
    answers["cannot tell"] = Completion("Yes.", "stop", 2)
    answers["failed"] = None
    result = run_suite(suite(list(answers), ("language",), ("language",), 0.25), Scripted(answers), "m")
    metric = result.metric("language")
    assert (metric.value, metric.n, metric.unscored) == (1.0, 8, 2)
    assert result.void == ()
    failed = result.cases[-1]
    assert failed.completion is None
    assert failed.scores == {"language": None}
    assert failed.error == "503: no replica"


def test_too_many_unscored_cases_void_the_suite() -> None:
    answers: dict[str, Completion | None] = {"a": Completion(ENGLISH, "stop", 9), "b": None}
    assert run_suite(suite(list(answers), ("stops",), ("stops",)), Scripted(answers), "m").void == ("stops",)


def test_a_suite_without_any_answer_has_no_value_and_is_void() -> None:
    result = run_suite(suite(["a"], ("stops",), ("stops",), 1.0), Scripted({"a": None}), "m")
    metric = result.metric("stops")
    assert (metric.value, metric.low, metric.high, metric.n, metric.unscored) == (None, None, None, 0, 1)
    assert result.void == ("stops",)


def test_a_metric_that_no_task_measures_is_refused_before_anything_is_asked() -> None:
    completer = Scripted({})
    with pytest.raises(SuiteError, match=r"'facts'.*'stops'"):
        run_suite(suite(["a"], ("stops",), ("facts",)), completer, "m")
    assert completer.asked == []
