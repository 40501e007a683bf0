"""The shapes of what /tokenize and /detokenize answer, for the OpenAPI document."""

from pydantic import with_config
from typing_extensions import TypedDict

from serve.answers.schema import CLOSED


@with_config(CLOSED)
class Tokens(TypedDict):
    """A text as the model would read it."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None
    """The tokens as the vocabulary spells them, where that was asked for."""


@with_config(CLOSED)
class Detokenized(TypedDict):
    """The text of some tokens, special ones included."""

    prompt: str
