"""Body of POST /v1/completions."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator, model_validator

from serve.protocol.body import Misfit, parse
from serve.protocol.presentation import MAX_LOGPROBS
from serve.protocol.sampling import INT64, NEUTRAL, GenerationBody
from serve.protocol.structured import FormedBody

MAX_PROMPTS = 64
MAX_SEQUENCES = 256
"""Of one request: prompts times choices, with those that are not handed out."""

_NEUTRAL: dict[str, tuple[Any, ...]] = NEUTRAL | {"suffix": ("",)}

Prompt = str | list[int]
_Ids = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
_Prompts = str | _Ids | Annotated[list[str | _Ids], Field(min_length=1, max_length=MAX_PROMPTS)]


class CompletionBody(FormedBody, GenerationBody):
    """One or more prompts, each as text or as token ids."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = _NEUTRAL

    prompt: Any = Field(
        description="Texts or lists of token ids to go on with, one or a list of them; with their choices at "
        f"most {MAX_SEQUENCES} texts in all."
    )
    max_tokens: int = Field(
        default=16, ge=0, lt=INT64, description="Most tokens to make; 0, with echo, only scores the prompt."
    )
    logprobs: int | None = Field(
        default=None,
        ge=0,
        le=MAX_LOGPROBS,
        description="Log probabilities of the tokens, and of so many likeliest ones beside each.",
    )
    echo: bool = Field(default=False, description="Begin each answer with its prompt.")
    add_special_tokens: bool = Field(
        default=True, description="Put the tokenizer's marks, such as BOS, around prompts sent as text."
    )

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
        name = "n" if self.best_of is None else "best_of"
        got = getattr(self, name) * len(self.prompt)
        if got > MAX_SEQUENCES:
            said = f"{name} times the number of prompts is {got}; at most {MAX_SEQUENCES} is allowed"
            raise Misfit(name, said)
        if self.max_tokens == 0 and not self.echo:
            raise Misfit("max_tokens", "max_tokens is 0; at least 1 is needed, or echo: true")
        if self.max_tokens == 0 and (self.best_of or self.n) > self.n:
            raise Misfit("best_of", f"best_of is {self.best_of}; at most n ({self.n}) where nothing is made")
        return self

    @property
    def limit(self) -> int | None:
        """The bound on new tokens that was asked for."""
        return self.max_tokens

    @property
    def wanted_logprobs(self) -> int | None:
        """Alternatives wanted beside each token; None for no log probabilities."""
        return self.logprobs

    @property
    def scored(self) -> int | None:
        """Alternatives wanted beside each token of the prompt; None for no log probabilities of it."""
        asked = (self.prompt_logprobs, self.logprobs if self.echo else None)
        return max((number for number in asked if number is not None), default=None)


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int and item >= 0 for item in value)


def parse_completion(body: Mapping[str, Any]) -> CompletionBody:
    """Raises UnsupportedParameter, UnknownParameter or InvalidField."""
    return parse(CompletionBody, body)
