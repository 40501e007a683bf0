"""What of an answer is shown, and in which form."""

from typing import Annotated

from pydantic import Field, StringConstraints, field_validator, model_validator

from serve.protocol.body import Body, Misfit

MAX_STOPS = 16
MAX_LOGPROBS = 20

StopText = Annotated[str, StringConstraints(min_length=1, max_length=512)]
_Stops = StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)]


class StreamOptions(Body):
    """What a stream carries beside its text."""

    include_usage: bool = Field(
        default=False, description="End with a chunk that has the usage of the whole request and no choices."
    )
    include_obfuscation: bool = Field(default=False, description="Not supported; only false is allowed.")
    continuous_usage_stats: bool = Field(
        default=False, description="Put the usage so far, of the whole request, into every chunk."
    )

    @field_validator("include_obfuscation")
    @classmethod
    def _off(cls, value: bool) -> bool:
        if value:
            raise ValueError("not supported here; allowed: false")
        return value


class StreamedBody(Body):
    """A request that may be answered in a stream."""

    stream: bool = Field(default=False, description="Send the answer as server-sent events, as it comes.")


class PresentationBody(StreamedBody):
    """What a request may say of how its answer looks."""

    stream_options: StreamOptions | None = Field(
        default=None, description="What the stream carries beside the text; needs stream: true."
    )
    stop: list[StopText] = Field(
        default=[],
        max_length=MAX_STOPS,
        description="Texts, one or a list, any of which ends an answer before it.",
    )
    include_stop_str_in_output: bool = Field(
        default=False, description="Show the stop text, or the stop token's text, that ended the answer."
    )
    skip_special_tokens: bool = Field(
        default=True, description="Leave special tokens out of the text; false shows them."
    )
    spaces_between_special_tokens: bool = Field(
        default=True, description="Without effect: the texts of tokens are joined as they are."
    )
    prompt_logprobs: int | None = Field(
        default=None,
        ge=0,
        le=MAX_LOGPROBS,
        description="Log probabilities of the prompt's tokens, and of so many likeliest ones beside each; "
        "not with stream.",
    )
    return_token_ids: bool = Field(
        default=False, description="Return the ids of the tokens of prompt and answer, too."
    )
    return_tokens_as_token_ids: bool = Field(
        default=False, description="Name tokens in log probabilities by their ids, as token_id:5."
    )
    truncate_prompt_tokens: int | None = Field(
        default=None,
        ge=-1,
        lt=1 << 63,
        description="Keep only so many last tokens of the prompt; -1: as many as fit beside max_tokens.",
    )

    @field_validator("stop", mode="before", json_schema_input_type=_Stops)
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("truncate_prompt_tokens")
    @classmethod
    def _keeps_some(cls, value: int) -> int:
        if value == 0:
            raise ValueError("expected -1, or at least 1")
        return value

    @model_validator(mode="after")
    def _presentable(self) -> "PresentationBody":
        if self.stream_options is not None and not self.stream:
            raise Misfit("stream_options", "stream_options needs stream: true")
        if self.prompt_logprobs is not None and self.stream:
            raise Misfit("prompt_logprobs", "prompt_logprobs cannot be streamed")
        return self

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def continuous_usage(self) -> bool:
        """Whether every chunk carries the usage so far."""
        return self.stream_options is not None and self.stream_options.continuous_usage_stats
