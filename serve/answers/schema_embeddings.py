"""The shapes of what /v1/embeddings and /v1/score answer, for the OpenAPI document."""

from typing import Literal

from pydantic import with_config
from typing_extensions import TypedDict

from serve.answers.schema import CLOSED


@with_config(CLOSED)
class VectorUsage(TypedDict):
    """Tokens of a request for vectors."""

    prompt_tokens: int
    total_tokens: int


@with_config(CLOSED)
class Embedding(TypedDict):
    """The vector of one text."""

    object: Literal["embedding"]
    index: int
    """Place of the text in input."""
    embedding: list[float] | str
    """Numbers, or base64 of them as float32 in little-endian order."""


@with_config(CLOSED)
class EmbeddingList(TypedDict):
    """The answer of POST /v1/embeddings."""

    id: str
    object: Literal["list"]
    model: str
    usage: VectorUsage
    data: list[Embedding]


@with_config(CLOSED)
class Score(TypedDict):
    """How alike one pair of texts is, from -1 to 1."""

    index: int
    object: Literal["score"]
    score: float


@with_config(CLOSED)
class ScoreList(TypedDict):
    """The answer of POST /v1/score."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Score]
    usage: VectorUsage
