"""The shapes of the Responses API's answers, for the OpenAPI document: the object, its items, its pages."""

from typing import Any, Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from serve.answers.schema import CLOSED
from serve.answers.schema_chat import TokenLogprob

ItemStatus = Literal["in_progress", "completed", "incomplete"]


@with_config(CLOSED)
class OutputTextPart(TypedDict):
    """Text of an answer."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[TokenLogprob]
    """Empty unless they were asked for."""


@with_config(CLOSED)
class ReasoningTextPart(TypedDict):
    """Text of a thought."""

    type: Literal["reasoning_text"]
    text: str


@with_config(CLOSED)
class OutputMessage(TypedDict):
    """Text for the reader."""

    id: str
    type: Literal["message"]
    status: ItemStatus
    role: Literal["assistant"]
    content: list[OutputTextPart]


@with_config(CLOSED)
class OutputReasoning(TypedDict):
    """A thought before the answer."""

    id: str
    type: Literal["reasoning"]
    status: ItemStatus
    summary: list[Any]
    """Always empty: thoughts are shown whole."""
    content: list[ReasoningTextPart]


@with_config(CLOSED)
class OutputFunctionCall(TypedDict):
    """A call of a function."""

    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    """What the item with the function's output names."""
    name: str
    arguments: str
    """JSON text as the model wrote it; cut where the item is incomplete."""


OutputItem = OutputMessage | OutputReasoning | OutputFunctionCall


@with_config(CLOSED)
class InputTokensDetails(TypedDict):
    """Where the tokens handed in came from."""

    cached_tokens: int
    cache_write_tokens: int
    """Always 0: writing to the prefix cache is not counted."""


@with_config(CLOSED)
class OutputTokensDetails(TypedDict):
    """What the new tokens are."""

    reasoning_tokens: int


@with_config(CLOSED)
class ResponseUsage(TypedDict):
    """Tokens of a turn, with all that it goes on from."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


@with_config(CLOSED)
class ResponseFailure(TypedDict):
    """Why a stream failed."""

    code: Literal["server_error"]
    message: str


@with_config(CLOSED)
class IncompleteDetails(TypedDict):
    """Why an answer is not whole."""

    reason: Literal["max_output_tokens"]


@with_config(CLOSED)
class ResponseObject(TypedDict):
    """The answer of POST /v1/responses, with what the request asked for."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    completed_at: int | None
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    background: Literal[False]
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: dict[str, Any]
    safety_identifier: str | None
    service_tier: Literal["default"]
    store: bool
    """Whether the finished answer is kept: false also where the database could not take it."""
    system_fingerprint: str
    """Digests of the base model and of the adapter that answered."""
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage | None
    user: str | None


@with_config(CLOSED)
class ResponseEvent(TypedDict):
    """The data of one event of a stream; which fields it has depends on its type."""

    type: str
    sequence_number: int
    response: NotRequired[ResponseObject]
    output_index: NotRequired[int]
    content_index: NotRequired[int]
    item_id: NotRequired[str]
    item: NotRequired[dict[str, Any]]
    part: NotRequired[dict[str, Any]]
    delta: NotRequired[str]
    text: NotRequired[str]
    arguments: NotRequired[str]
    logprobs: NotRequired[list[TokenLogprob]]
    code: NotRequired[str]
    message: NotRequired[str]
    param: NotRequired[str | None]


@with_config(CLOSED)
class ResponseDeleted(TypedDict):
    """That an answer is forgotten."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


@with_config(CLOSED)
class InputItemList(TypedDict):
    """A page of what was handed in with a request."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool
