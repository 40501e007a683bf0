"""What a route says of itself: the OpenAPI document and docs/api.md are made of it.

Handlers read their bodies themselves, strictly (serve.protocol), so nothing here checks or changes a request.
A route is declared with it: `@routes.post("/v1/x", openapi_extra=Description(...).extra)`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fastapi.routing import APIRoute

import engine.errors
from serve import errors
from serve.protocol.body import Body

JSON = "application/json"
EVENTS = "text/event-stream"
TEXT = "text/plain"
FORM = "multipart/form-data"

Key = Literal["none", "api", "admin"]
Errors = tuple[type[Exception], ...]

BODY: Errors = (
    errors.InvalidBody,
    errors.InvalidField,
    errors.UnsupportedParameter,
    errors.UnknownParameter,
    errors.BodyTooLarge,
)
QUERY: Errors = (errors.InvalidField, errors.UnknownParameter)
KEYS: dict[Key, Errors] = {
    "none": (),
    "api": (errors.Unauthorized,),
    "admin": (errors.Unauthorized, errors.Forbidden),
}
MODEL: Errors = (
    errors.UnknownModel,
    errors.WrongTask,
    errors.ContextTooLong,
    errors.NoReplica,
    errors.ReplicaLost,
    errors.GenerationError,
    engine.errors.QueueFull,
    engine.errors.UnknownAdapter,
    engine.errors.BadGrammar,
    engine.errors.GrammarTooComplex,
)
"""What a request that a model answers may meet."""

VECTORS: Errors = (
    errors.UnknownModel,
    errors.WrongTask,
    errors.InputTooLong,
    errors.NoReplica,
    errors.ReplicaLost,
    engine.errors.EmbeddingFailed,
    engine.errors.QueueFull,
    engine.errors.UnknownAdapter,
    engine.errors.BadGrammar,
    engine.errors.GrammarTooComplex,
)
"""What a request that a model makes vectors for may meet."""

WHO = ("x-noria-request-id", "x-noria-adapter", "x-noria-variant", "x-noria-choice-ids")
"""Headers of an answer that a model gave."""

_EXTRA = "description"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One operation.

    tag: the section it belongs to.
    answer: media type -> type of what a success is answered with; of EVENTS the type of each event's data.
    also: another status -> type of the JSON object that comes with it.
    body, query: what it takes; path: name in the path -> what it names.
    key: which key it needs, where keys are set.
    errors: refusals of its own, beside those that body, query and key bring with them.
    caller: whether it reads the headers that say who asks and for whom.
    headers: of its answer, beside those that every answer has.
    """

    summary: str
    tag: str
    answer: Mapping[str, Any]
    status: int = 200
    also: Mapping[int, Any] = field(default_factory=dict)
    body: type[Body] | None = None
    body_media: str = JSON
    query: type[Body] | None = None
    path: Mapping[str, str] = field(default_factory=dict)
    key: Key = "api"
    errors: Errors = ()
    caller: bool = False
    headers: tuple[str, ...] = ()

    @property
    def refusals(self) -> Errors:
        """Every error that it documents."""
        body = BODY if self.body else ()
        query = QUERY if self.query else ()
        return (*body, *query, *KEYS[self.key], *self.errors)

    @property
    def extra(self) -> dict[str, Any]:
        """What the route is declared with."""
        return {_EXTRA: self}


def description_of(route: APIRoute) -> Description:
    """Raises KeyError for a route that was declared without one."""
    found: Description = (route.openapi_extra or {})[_EXTRA]
    return found
