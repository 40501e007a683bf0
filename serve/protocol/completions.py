"""Body of POST /v1/completions."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator, model_validator

from serve.protocol.body import Misfit, parse
from serve.protocol.sampling import INT64, MAX_CHOICES, NEUTRAL, GenerationBody

MAX_PROMPTS = 64
_NEUTRAL: dict[str, tuple[Any, ...]] = NEUTRAL | {"add_special_tokens": (True,), "suffix": ("",)}

Prompt = str | list[int]
_Ids = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
_Prompts = str | _Ids | Annotated[list[str | _Ids], Field(min_length=1, max_length=MAX_PROMPTS)]


class CompletionBody(GenerationBody):
    """One or more prompts, each as text or as token ids."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = _NEUTRAL

    prompt: Any
    max_tokens: int = Field(default=16, ge=1, lt=INT64)
    logprobs: int | None = Field(default=None, ge=0, le=20)

    @field_validator("prompt", mode="before", json_schema_input_type=_Prompts)
    @classmethod
    def _prompts(cls, value: object) -> list[Prompt]:
        """Every form of `prompt` becomes a list of texts or lists of token ids."""
        if isinstance(value, str) or _is_ids(value):
            value = [value]
        if not isinstance(value, list) or not value:
            raise ValueError("expected a string, token ids, or a list of either that is not empty")
        if len(value) > MAX_PROMPTS:
            raise ValueError(f"{len(value)} prompts; at most {MAX_PROMPTS} are allowed")
        if not all(isinstance(item, str) or _is_ids(item) for item in value):
            raise ValueError("expected a string, token ids (integers >= 0), or a list of either")
        return value

    @model_validator(mode="after")
    def _belong_together(self) -> "CompletionBody":
        if self.stream_options is not None and not self.stream:
            raise Misfit("stream_options", "stream_options needs stream: true")
        if self.n * len(self.prompt) > MAX_PROMPTS * MAX_CHOICES // 8:
            got, allowed = self.n * len(self.prompt), MAX_PROMPTS * MAX_CHOICES // 8
            raise Misfit("n", f"n times the number of prompts is {got}; at most {allowed} is allowed")
        return self

    @property
    def limit(self) -> int | None:
        """The bound on new tokens that was asked for."""
        return self.max_tokens

    @property
    def wanted_logprobs(self) -> int | None:
        """Alternatives wanted beside each token; None for no log probabilities."""
        return self.logprobs


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int and item >= 0 for item in value)


def parse_completion(body: Mapping[str, Any]) -> CompletionBody:
    """Raises UnsupportedParameter, UnknownParameter or InvalidField."""
    return parse(CompletionBody, body)
