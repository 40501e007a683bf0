"""Bodies of the admin API (vLLM's, with three optional fields of our own) and of POST /v1/feedback."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import StringConstraints, field_validator, model_validator

from serve.ids import bare_id
from serve.protocol.body import Body, Misfit, parse
from serve.protocol.sampling import UserKey

AdapterName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
FeedbackText = Annotated[str, StringConstraints(min_length=1, max_length=100_000)]


class LoadAdapterBody(Body):
    """load_inplace: replace the adapter of this name. force: accept an adapter of another base model."""

    lora_name: AdapterName
    lora_path: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    load_inplace: bool = False
    base_model: str | None = None
    force: bool = False

    @field_validator("lora_name")
    @classmethod
    def _no_outer_space(cls, value: str) -> str:
        if value != value.strip():
            raise ValueError("no space is allowed at either end")
        return value


class UnloadAdapterBody(Body):
    """lora_int_id is part of vLLM's body and means nothing there either."""

    lora_name: AdapterName
    lora_int_id: int | None = None


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
    return parse(LoadAdapterBody, body, {"is_3d_lora_weight": (False,), "pinned": (False,)})


def parse_unload(body: Mapping[str, Any]) -> UnloadAdapterBody:
    """Raises UnknownParameter or InvalidField."""
    return parse(UnloadAdapterBody, body, {})


def parse_feedback(body: Mapping[str, Any]) -> FeedbackBody:
    """Raises UnknownParameter or InvalidField."""
    return parse(FeedbackBody, body, {})
