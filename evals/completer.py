"""A Completer answers conversations, all that there are at once. It does not know suites, tasks or scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict

from evals.errors import CompletionFailed


class Message(TypedDict):
    """One turn of a conversation."""

    role: str
    content: str


Conversation = Sequence[Message]
Done = Callable[[int], None]
"""Called with the number of conversations that are done, on the caller's thread."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer. `finish_reason` is "stop" when the model ended by itself, "length" when it was cut."""

    text: str
    finish_reason: str
    completion_tokens: int
    served_by: str | None = None
    """What the endpoint says answered (its system fingerprint), where it says so."""


class Completer(Protocol):
    """Anything that can answer."""

    def complete(
        self,
        conversations: Sequence[Conversation],
        *,
        model: str,
        max_tokens: int,
        temperature: float,
        done: Done,
    ) -> list[Completion | CompletionFailed]:
        """The answer to each in its place, or why there is none."""
