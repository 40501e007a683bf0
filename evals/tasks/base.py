"""What a task is: it scores one answer to one case. One file a task, registered in tasks/__init__.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from evals.completer import Completion
from evals.suite import Case

Kind = Literal["rate", "mean"]
"""A rate is made of zeros and ones (Wilson interval), a mean of any finite numbers (t interval)."""


class Task(Protocol):
    """Members a task file provides."""

    name: str
    metrics: Mapping[str, Kind]

    def applies(self, case: Case) -> bool:
        """Whether the case has what this task needs; a case it does not apply to is not counted at all."""
        ...

    def score(self, case: Case, completion: Completion) -> Mapping[str, float | None]:
        """A value for each metric; None where the answer cannot be judged."""
        ...
