"""Errors of evals.

EvalError
├── SuiteError         a suite's files do not say what a suite must say
├── UnknownTask        a suite names a task that is not registered
└── CompletionFailed   the endpoint gave no answer for one case (the case stays unscored)
"""


class EvalError(Exception):
    """Something an evaluation cannot go on with."""


class SuiteError(EvalError):
    """A suite's suite.toml or cases.jsonl is malformed; the message names file, line and value."""


class UnknownTask(EvalError):
    """A suite names a task that no file under evals/tasks registers."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"unknown task {name!r}; known tasks: {', '.join(known)}")


class CompletionFailed(EvalError):
    """The endpoint refused or broke off one answer; the case is counted as unscored."""
