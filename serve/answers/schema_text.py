"""The shapes of text completions, whole and in chunks, for the OpenAPI document."""

from typing import Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from serve.answers.schema import CLOSED, FinishReason, PromptLogprobs, StopReason, Usage


@with_config(CLOSED)
class TextLogprobs(TypedDict):
    """Log probabilities of a choice, one entry a token in each list.

    Every token that was read is in it: a stop string cuts the text before it, not its tokens.
    """

    text_offset: list[int]
    """Characters of the text that were whole before the token began."""
    token_logprobs: list[float | None]
    """Of the raw logits, before temperature and penalties; at least -9999.0; null for a prompt's first."""
    tokens: list[str]
    """Text of each token; bytes:\\xc3 for one that is no text alone."""
    top_logprobs: list[dict[str, float] | None]
    """The likeliest tokens in this place, and the one that stands there."""


@with_config(CLOSED)
class TextChoice(TypedDict):
    """One of `n` answers to one of the prompts; index = prompt * n + choice."""

    index: int
    text: str
    """With echo, it begins with the prompt."""
    logprobs: TextLogprobs | None
    finish_reason: FinishReason
    stop_reason: StopReason
    prompt_logprobs: NotRequired[PromptLogprobs]
    token_ids: NotRequired[list[int]]
    """With return_token_ids: of the answer, also those that show no text."""
    prompt_token_ids: NotRequired[list[int]]
    """With return_token_ids."""


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
    token_ids: NotRequired[list[int]]
    """With return_token_ids: those of this part."""
    prompt_token_ids: NotRequired[list[int]]
    """With return_token_ids, in the first part of a choice."""


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
    """With stream_options.include_usage: null, then the usage in the last chunk, which has no choices.
    With continuous_usage_stats: the usage so far."""
