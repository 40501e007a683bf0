"""The shapes of chat completions, whole and in chunks, for the OpenAPI document."""

from typing import Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from serve.answers.schema import CLOSED, FinishReason, PromptLogprobs, StopReason, Usage


@with_config(CLOSED)
class TopLogprob(TypedDict):
    """A token that was likely in this place."""

    token: str
    logprob: float
    """At least -9999.0."""
    bytes: list[int]
    """The token's own bytes, also where they are half a character."""


@with_config(CLOSED)
class TokenLogprob(TypedDict):
    """The token that was chosen, and the likeliest ones in its place."""

    token: str
    logprob: float
    """Of the raw logits, before temperature and penalties; at least -9999.0."""
    bytes: list[int]
    top_logprobs: list[TopLogprob]


@with_config(CLOSED)
class ChatLogprobs(TypedDict):
    """Log probabilities of a choice, token by token.

    Every token that was read is in it: a stop string cuts the text before it, not its tokens.
    """

    content: list[TokenLogprob]


@with_config(CLOSED)
class CalledFunction(TypedDict):
    """The function that is called."""

    name: str
    arguments: str
    """A JSON object, as the model wrote it; cut short where the answer was."""


@with_config(CLOSED)
class ToolCall(TypedDict):
    """A call that the answer makes."""

    id: str
    type: Literal["function"]
    function: CalledFunction


@with_config(CLOSED)
class AssistantMessage(TypedDict):
    """The answer as a turn of the conversation."""

    role: Literal["assistant"]
    content: str | None
    """Null where the answer is calls or reasoning alone."""
    refusal: None
    reasoning: NotRequired[str]
    """The thought before the answer, where the model writes one."""
    tool_calls: NotRequired[list[ToolCall]]


@with_config(CLOSED)
class ChatChoice(TypedDict):
    """One of `n` answers."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    stop_reason: StopReason
    token_ids: NotRequired[list[int]]
    """With return_token_ids: of the answer, also those that show no text."""


@with_config(CLOSED)
class ChatCompletion(TypedDict):
    """The answer of POST /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    """Digests of the base model and of the adapter that answered."""
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: NotRequired[PromptLogprobs]
    prompt_token_ids: NotRequired[list[int]]
    """With return_token_ids."""


@with_config(CLOSED)
class FunctionDelta(TypedDict):
    """What is added to a call: its name once, its arguments piece by piece."""

    name: NotRequired[str]
    arguments: str


@with_config(CLOSED)
class ToolCallDelta(TypedDict):
    """What is added to the `index`-th call; id, type and name come with its first part."""

    index: int
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionDelta


@with_config(CLOSED)
class ChatDelta(TypedDict):
    """What this chunk adds to a choice's message."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str]
    reasoning: NotRequired[str]
    tool_calls: NotRequired[list[ToolCallDelta]]


@with_config(CLOSED)
class ChatChunkChoice(TypedDict):
    """A part of one choice; the last one has its finish_reason."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: NotRequired[StopReason]
    token_ids: NotRequired[list[int]]
    """With return_token_ids: those of this part."""


@with_config(CLOSED)
class ChatCompletionChunk(TypedDict):
    """The data of one event of a chat stream."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChunkChoice]
    usage: NotRequired[Usage | None]
    """With stream_options.include_usage: null, then the usage in the last chunk, which has no choices.
    With continuous_usage_stats: the usage so far."""
    prompt_token_ids: NotRequired[list[int]]
    """With return_token_ids, in the first chunk of each choice."""
