"""A Completer answers a conversation; OpenAICompleter does it through any OpenAI-compatible endpoint.

It does not know suites, tasks or scores. One client is shared by all threads of a run; the openai client
is safe to share between threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypedDict, cast

from evals.errors import CompletionFailed

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam


class Message(TypedDict):
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer. `finish_reason` is "stop" when the model ended by itself, "length" when it was cut."""

    text: str
    finish_reason: str
    completion_tokens: int
    served_by: str | None = None
    """What the endpoint says answered (its system fingerprint), where it says so."""


class Completer(Protocol):
    """Anything that can answer; raises CompletionFailed when it cannot."""

    def complete(
        self, messages: Sequence[Message], *, model: str, max_tokens: int, temperature: float
    ) -> Completion: ...


class OpenAICompleter:
    """A Completer over POST /chat/completions.

    `headers` go with every request: evaluation traffic says so with `x-noria-source: eval`, which keeps it
    out of every training set. `timeout_s` bounds one try; the client tries twice more by itself.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "none",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
    ) -> None:
        from openai import OpenAI

        self._client = OpenAI(
            base_url=base_url, api_key=api_key, default_headers=dict(headers or {}), timeout=timeout_s
        )

    def complete(
        self, messages: Sequence[Message], *, model: str, max_tokens: int, temperature: float
    ) -> Completion:
        """Raises: CompletionFailed with the endpoint's own words."""
        from openai import OpenAIError

        try:
            answer = self._client.chat.completions.create(
                model=model,
                messages=cast("list[ChatCompletionMessageParam]", list(messages)),
                max_tokens=max_tokens,
                temperature=temperature,
            )
        except OpenAIError as error:
            raise CompletionFailed(f"{type(error).__name__}: {error}") from error
        if not answer.choices:
            raise CompletionFailed("the endpoint answered without a choice")
        choice = answer.choices[0]
        return Completion(
            text=choice.message.content or "",
            finish_reason=choice.finish_reason,
            completion_tokens=answer.usage.completion_tokens if answer.usage else 0,
            served_by=answer.system_fingerprint,
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
