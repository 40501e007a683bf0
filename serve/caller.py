"""What a request says of itself beside its body: who asks, for whom, and what it belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from serve.errors import InvalidField, brief
from serve.ids import bare_id, uuid7

MAX_HEADER_CHARS = 512

Source = Literal["traffic", "eval"]


@dataclass(frozen=True, slots=True)
class Caller:
    """One request's circumstances. `id` is the request's own, made here; `parent` a regeneration's origin.

    background: nobody waits for the answer, so it comes after all that somebody waits for.
    """

    id: str
    tenant: str
    user: str | None = None
    conversation: str | None = None
    parent: str | None = None
    source: Source = "traffic"
    background: bool = False

    def with_parent(self, value: str | None, param: str) -> "Caller":
        """Name the origin, unless one is named already. Raises InvalidField for what is no request's id."""
        if value is None or self.parent is not None:
            return self
        try:
            return replace(self, parent=bare_id(value))
        except ValueError:
            raise InvalidField(f"{param} is {value!r}; expected the id of a request", param) from None


def read_caller(headers: Mapping[str, str], tenant: str) -> Caller:
    """Raises InvalidField for a header with a value it may not have."""
    caller = Caller(
        id=uuid7(),
        tenant=tenant,
        user=_header(headers, "x-noria-user"),
        conversation=_header(headers, "x-noria-conversation"),
        source=_source(headers.get("x-noria-source")),
    )
    return caller.with_parent(_header(headers, "x-noria-parent"), "x-noria-parent")


def _header(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name) or None
    if value is not None and len(value) > MAX_HEADER_CHARS:
        raise InvalidField(
            f"{name} has {len(value)} characters; at most {MAX_HEADER_CHARS} are allowed", name
        )
    return value


def _source(value: str | None) -> Source:
    match value:
        case None | "traffic":
            return "traffic"
        case "eval":
            return "eval"
        case _:
            raise InvalidField(f"x-noria-source is {brief(value)}; allowed: traffic, eval", "x-noria-source")
