"""The shapes of text completions, whole and in chunks, for the OpenAPI document."""

from typing import Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from serve.answers.schema import CLOSED, FinishReason, StopReason, Usage


@with_config(CLOSED)
class TextLogprobs(TypedDict):
    """Log probabilities of a choice, one entry a token in each list."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


@with_config(CLOSED)
class TextChoice(TypedDict):
    """One of `n` answers to one of the prompts; index = prompt * n + choice."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: FinishReason
    stop_reason: StopReason


@with_config(CLOSED)
class Completion(TypedDict):
    """The answer of POST /v1/completions."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    """Digests of the base model and of the adapter that answered."""
    choices: list[TextChoice]
    usage: Usage


@with_config(CLOSED)
class TextChunkChoice(TypedDict):
    """A part of one choice; the last one has its finish_reason."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: StopReason


@with_config(CLOSED)
class CompletionChunk(TypedDict):
    """The data of one event of a text stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChunkChoice]
    usage: NotRequired[Usage | None]
    """With stream_options.include_usage: null, then the usage in the last chunk, which has no choices."""
