"""The shapes of answers, for the OpenAPI document: what all share. Nothing is made or checked with them.

The formats beside this module make plain dictionaries; tests hold those to these types.
"""

from typing import Literal

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

CLOSED = ConfigDict(extra="forbid", use_attribute_docstrings=True)


@with_config(CLOSED)
class PromptTokensDetails(TypedDict):
    """Where the prompt's tokens came from."""

    cached_tokens: int
    """Prompt tokens whose keys and values were found in the prefix cache."""


@with_config(CLOSED)
class Usage(TypedDict):
    """Tokens of a request: each prompt counts once, however many choices were made of it."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


@with_config(CLOSED)
class ErrorDetail(TypedDict):
    """What was wrong."""

    message: str
    """What was wrong, the value met and the values allowed."""
    type: str
    param: str | None
    """The parameter to change."""
    code: str
    """A word for programs; see the table of errors."""


@with_config(CLOSED)
class Error(TypedDict):
    """The answer to whatever failed; inside a stream, the data of one event before its end."""

    error: ErrorDetail


@with_config(CLOSED)
class PromptLogprob(TypedDict):
    """One token at one position of a prompt."""

    logprob: float
    rank: int | None
    decoded_token: str | None


FinishReason = Literal["stop", "length", "tool_calls"]
StopReason = str | int | None
"""The stop string or token id that ended the text; None for an end of turn or the length."""

PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""For each prompt token, token id -> its log probability; None for the first."""
