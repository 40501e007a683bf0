"""Facts: the answer contains one of the expected answers.

Compared without case, accents and punctuation, and on whole words, so "Paris" is in "It is Paris." and "4" is
not in "14". A case without `expect` is not asked.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from evals.completer import Completion
from evals.suite import Case
from evals.tasks.base import Kind


def normalise(text: str) -> str:
    """Lower case, no accents, every run of other signs one space, a space at both ends."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return f" {re.sub(r'[^a-z0-9]+', ' ', plain).strip()} "


class Facts:
    """Metric: facts (rate)."""

    name = "facts"
    metrics: Mapping[str, Kind] = {"facts": "rate"}

    def applies(self, case: Case) -> bool:
        return bool(case.expect)

    def score(self, case: Case, completion: Completion) -> Mapping[str, float | None]:
        answer = normalise(completion.text)
        return {"facts": float(any(normalise(text) in answer for text in case.expect))}
