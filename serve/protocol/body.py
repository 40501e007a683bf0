"""From the bytes of a request to a checked model: JSON, then names, then types and values.

Nothing is ignored: a parameter that is not served is refused by its name. null counts as not sent.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from serve.errors import InvalidBody, InvalidField, UnknownParameter, UnsupportedParameter, brief
from serve.protocol.nesting import is_deeper

MAX_DEPTH = 128
"""Arrays and objects one within another."""


class Body(BaseModel):
    """Base of all request bodies: no coercion of types, no NaN, no unknown names.

    neutral: parameters of the public APIs that are not served, each with the values that change nothing and
    therefore pass. renamed: those among them that are served by another name, each with that name.
    """

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    renamed: ClassVar[Mapping[str, str]] = {}

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, value: Any) -> Any:
        """Also of an object within the body."""
        if not isinstance(value, dict):
            return value
        return {name: item for name, item in value.items() if item is not None}


class Misfit(ValueError):
    """Parameters that do not go together; `param` is the one to change, as its own model names it.

    Where that is all of a model it is empty.
    """

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


Model = TypeVar("Model", bound=Body)


def read_json(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`, UTF-8. Raises InvalidBody, also for NaN and for half of a surrogate pair."""
    if is_deeper(raw, MAX_DEPTH):
        raise InvalidBody(f"the body is nested deeper than the {MAX_DEPTH} levels allowed")
    try:
        value = json.loads(raw.decode(), parse_constant=_refuse_constant)
        if b"\\u" in raw:
            json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except ValueError as error:
        raise InvalidBody(f"the body is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidBody(f"the body is a JSON {type(value).__name__}; an object is expected")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def parse(kind: type[Model], body: Mapping[str, Any]) -> Model:
    """Check a body against its model. Raises UnsupportedParameter, UnknownParameter or InvalidField."""
    kept: dict[str, Any] = {}
    neutral = kind.neutral
    for name, value in body.items():
        if value is None:
            continue
        if name in kind.model_fields:
            kept[name] = value
        elif name not in neutral:
            raise UnknownParameter(name)
        elif name in kind.renamed:
            raise UnsupportedParameter(name, value, f"{kind.renamed[name]} in its place")
        elif not any(type(value) is type(allowed) and value == allowed for allowed in neutral[name]):
            allowed = ", ".join(json.dumps(item) for item in neutral[name])
            raise UnsupportedParameter(name, value, f"{allowed} or nothing" if allowed else "nothing")
    try:
        return kind.model_validate(kept)
    except ValidationError as error:
        raise _first_problem(error, kept) from error


def _first_problem(error: ValidationError, body: Mapping[str, Any]) -> InvalidField:
    problem = error.errors(include_url=False)[0]
    cause = problem.get("ctx", {}).get("error")
    is_missing = problem["type"] == "missing"
    param = _path(problem["loc"], body, is_missing)
    if isinstance(cause, Misfit):
        place = [param] if problem["loc"] else []
        return InvalidField(str(cause), ".".join([*place, *filter(None, [cause.param])]))
    if is_missing:
        return InvalidField(f"{param} is missing", param)
    message = problem["msg"].removeprefix("Value error, ")
    return InvalidField(f"{param} is {brief(problem['input'])}; {message}", param)


def _path(location: tuple[str | int, ...], body: Any, is_missing: bool) -> str:
    """messages[0].content from pydantic's location.

    What the client did not send is left out, for it is pydantic's own word for a kind of value; but where the
    last part is missing from the body, that is the problem.
    """
    text = ""
    for place, part in enumerate(location, start=1):
        if isinstance(part, str):
            sent = isinstance(body, dict) and part in body
            if sent or (is_missing and place == len(location)):
                text += f".{part}" if text else part
            body = body[part] if sent else body
        elif isinstance(body, list) and part < len(body):
            text += f"[{part}]"
            body = body[part]
    return text or "body"
