"""Suites, tasks and statistics; sees a Completer, never an engine.

    Completer --answers--> Task.score --scores--> runner --means and bounds--> SuiteResult

A suite is data (suites/<name>/suite.toml + cases.jsonl); a task is one file under tasks/. Nothing here
knows where a model runs, what an adapter is, or how results are stored.
"""

from evals.batch_completer import BatchCompleter
from evals.completer import Completer, Completion, Conversation, Done, Message
from evals.errors import CompletionFailed, EvalError, SuiteError, UnknownTask
from evals.runner import CaseResult, MetricResult, SuiteResult, run_suite
from evals.suite import Case, MetricSpec, Suite, load_suite, suite_names

__all__ = [
    "BatchCompleter",
    "Case",
    "CaseResult",
    "Completer",
    "Completion",
    "CompletionFailed",
    "Conversation",
    "Done",
    "EvalError",
    "Message",
    "MetricResult",
    "MetricSpec",
    "Suite",
    "SuiteError",
    "SuiteResult",
    "UnknownTask",
    "load_suite",
    "run_suite",
    "suite_names",
]
