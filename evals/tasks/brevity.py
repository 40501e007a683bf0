"""Brevity: the reader wants one short paragraph, finished.

An answer is brief when it ended by itself (finish reason "stop"), is one paragraph (no line break once
trimmed) and has 1 to 60 words (split on white space). An empty answer is not brief.
"""

from __future__ import annotations

from collections.abc import Mapping

from evals.completer import Completion
from evals.suite import Case
from evals.tasks.base import Kind

MAX_WORDS = 60


def is_brief(text: str, finish_reason: str, max_words: int = MAX_WORDS) -> bool:
    """The whole rule, for whoever needs it without a suite."""
    answer = text.strip()
    return finish_reason == "stop" and "\n" not in answer and 0 < len(answer.split()) <= max_words


class Brevity:
    """Metrics: brief (rate), words (mean)."""

    name = "brevity"
    metrics: Mapping[str, Kind] = {"brief": "rate", "words": "mean"}

    def applies(self, case: Case) -> bool:
        return True

    def score(self, case: Case, completion: Completion) -> Mapping[str, float | None]:
        brief = is_brief(completion.text, completion.finish_reason)
        return {"brief": float(brief), "words": float(len(completion.text.split()))}
