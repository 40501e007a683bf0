"""What the trainer process tells its parent, one JSON object a line.

Events: "stage" (stage, step, steps), "rows" (figures about the data), "step" (step, steps, loss, grad_norm,
seconds), "done" (figures) and "failed" (kind, message). Nothing else is ever written to that stream.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Literal

from pipeline.errors import TrainingFailed

EventName = Literal["stage", "rows", "step", "done", "failed"]
Stage = Literal["loading", "reference", "training", "checking"]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the stream."""

    name: EventName
    figures: Mapping[str, Any] = field(default_factory=dict)


class EventStream:
    """Writer side; `pipe` is text, and flushed after each event."""

    def __init__(self, pipe: IO[str]) -> None:
        self._pipe = pipe

    def send(self, name: EventName, **figures: Any) -> None:
        """Write one event; a figure that is not finite travels as null."""
        clean = {key: None if _not_finite(value) else value for key, value in figures.items()}
        self._pipe.write(json.dumps({"event": name, **clean}, allow_nan=False) + "\n")
        self._pipe.flush()


def parse_event(line: str) -> Event:
    """Reader side. Raises: TrainingFailed when the line is no event."""
    try:
        content = json.loads(line)
    except json.JSONDecodeError:
        content = None
    if not isinstance(content, dict) or "event" not in content:
        raise TrainingFailed(f"the trainer wrote a line that is no event: {line[:200]!r}")
    return Event(content.pop("event"), content)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainProgress:
    """What a caller of `train` sees. Times in seconds; `steps` is 0 until it is known."""

    stage: Stage
    step: int = 0
    steps: int = 0
    loss: float | None = None
    seconds_per_step: float | None = None


def _not_finite(value: Any) -> bool:
    return isinstance(value, float) and (value != value or value in (float("inf"), float("-inf")))
