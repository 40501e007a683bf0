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

    lora_name: AdapterName = Field(description="The id that clients call it by.")
    lora_path: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(
        description="Its folder, below one of the allowed roots."
    )
    load_inplace: bool = Field(default=False, description="Replace the adapter of this name.")
    base_model: str | None = Field(
        default=None, description="The base model to serve it with; without it the one that its config names."
    )
    force: bool = Field(default=False, description="Accept an adapter that names another base model.")
    pinned: bool = Field(default=False, description="Keep it resident on every replica.")
    lora_int_id: int | None = Field(default=None, description="Without effect, as in vLLM.")

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

    lora_name: AdapterName = Field(description="The id of a loaded adapter.")
    lora_int_id: int | None = Field(default=None, description="Without effect, as in vLLM.")


class AdapterQuery(Body):
    """A page of the listing: `limit` adapters whose ids come after `after`, and the filters that are set."""

    model_config = ConfigDict(strict=False)

    limit: int = Field(default=100, ge=1, le=1000, description="Most adapters of a page.")
    after: AdapterName | None = Field(default=None, description="The page begins behind this id.")
    endpoint: AdapterName | None = Field(default=None, description="Only versions of this endpoint.")
    status: AdapterStatus | None = Field(default=None, description="Only those of this status.")
    base_model: AdapterName | None = Field(default=None, description="Only those of this base model.")
    loaded: bool | None = Field(
        default=None, description="Only those that may be called by their id, or not."
    )


class FeedbackBody(Body):
    """One act of feedback on one answer."""

    request_id: str = Field(description="x-noria-request-id of the answer, or the id of its object.")
    kind: Literal["thumbs", "regenerate", "edit", "comment"] = Field(description="What was done.")
    value: int | None = Field(default=None, description="Of thumbs: 1 or -1.")
    text: FeedbackText | None = Field(
        default=None, description="Of an edit the answer as it should have been; of a comment what it says."
    )
    user: UserKey | None = Field(default=None, description="Who acts.")
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = Field(
        default=None, description="Calls with an equal key count once."
    )

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
