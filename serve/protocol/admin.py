"""What the admin API takes (vLLM's bodies, with fields of our own), and the body of POST /v1/feedback."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, StringConstraints, field_validator, model_validator

from db.rows import AdapterStatus
from serve.errors import UnknownAdapterName
from serve.ids import bare_id
from serve.protocol.body import Body, Misfit, parse
from serve.protocol.sampling import UserKey

_ID = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,200}")
AdapterName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=f"^{_ID.pattern}$")]
FeedbackText = Annotated[str, StringConstraints(min_length=1, max_length=100_000)]


class LoadAdapterBody(Body):
    """load_inplace: replace the adapter of this name. force: accept an adapter of another base model.

    pinned: keep it resident on every replica (SGLang's clients send it). lora_int_id means nothing.
    """

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"is_3d_lora_weight": (False,)}

    lora_name: AdapterName
    lora_path: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    load_inplace: bool = False
    base_model: str | None = None
    force: bool = False
    pinned: bool = False
    lora_int_id: int | None = None

    @field_validator("lora_name")
    @classmethod
    def _fits_a_path(cls, value: str) -> str:
        """Names stand in paths, and proxies on the way fold some of them together."""
        if value != value.strip():
            raise ValueError("no space is allowed at either end")
        if {"", ".", ".."} & set(value.split("/")):
            raise ValueError("no empty part, '.' or '..' is allowed before, between or behind slashes")
        return value


class UnloadAdapterBody(Body):
    """lora_int_id is part of vLLM's body and means nothing there either."""

    lora_name: AdapterName
    lora_int_id: int | None = None


class AdapterQuery(Body):
    """A page of the listing: `limit` adapters whose ids come after `after`, and the filters that are set."""

    model_config = ConfigDict(strict=False)

    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    after: AdapterName | None = None
    endpoint: AdapterName | None = None
    status: AdapterStatus | None = None
    base_model: AdapterName | None = None
    loaded: bool | None = None


class FeedbackBody(Body):
    """One act of feedback on one answer."""

    request_id: str
    kind: Literal["thumbs", "regenerate", "edit", "comment"]
    value: int | None = None
    text: FeedbackText | None = None
    user: UserKey | None = None
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None

    @field_validator("request_id")
    @classmethod
    def _plain_uuid(cls, value: str) -> str:
        """The bare id, also when the id of a completion object was sent."""
        try:
            return bare_id(value)
        except ValueError:
            raise ValueError(
                "expected the id of a request (x-noria-request-id, or a completion's id)"
            ) from None

    @model_validator(mode="after")
    def _fits_kind(self) -> "FeedbackBody":
        if self.kind == "thumbs" and self.value not in (1, -1):
            raise Misfit("value", f"thumbs needs value 1 or -1, got {self.value}")
        if self.kind != "thumbs" and self.value is not None:
            raise Misfit("value", f"{self.kind} takes no value")
        if self.kind in ("edit", "comment") and self.text is None:
            raise Misfit("text", f"{self.kind} needs text")
        if self.kind in ("thumbs", "regenerate") and self.text is not None:
            raise Misfit("text", f"{self.kind} takes no text")
        return self


def parse_load(body: Mapping[str, Any]) -> LoadAdapterBody:
    """Raises UnsupportedParameter, UnknownParameter or InvalidField."""
    return parse(LoadAdapterBody, body)


def parse_unload(body: Mapping[str, Any]) -> UnloadAdapterBody:
    """Raises UnknownParameter or InvalidField."""
    return parse(UnloadAdapterBody, body)


def parse_query(parameters: Mapping[str, str]) -> AdapterQuery:
    """Raises UnknownParameter or InvalidField."""
    return parse(AdapterQuery, parameters)


def check_id(adapter_id: str) -> str:
    """The id itself. Raises UnknownAdapterName for one that no adapter can have."""
    if not _ID.fullmatch(adapter_id):
        raise UnknownAdapterName(adapter_id, param="id")
    return adapter_id


def parse_feedback(body: Mapping[str, Any]) -> FeedbackBody:
    """Raises UnknownParameter or InvalidField."""
    return parse(FeedbackBody, body)
