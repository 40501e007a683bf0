"""Body of POST /v1/chat/completions."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from serve.protocol.body import Body, Misfit, parse
from serve.protocol.sampling import INT64, NEUTRAL, GenerationBody, Name
from serve.protocol.structured import FormedBody

_NEUTRAL: dict[str, tuple[Any, ...]] = NEUTRAL | {
    "add_special_tokens": (False,),
    "audio": (),
    "chat_template": (),
    "continue_final_message": (False,),
    "documents": (),
    "echo": (False,),
    "function_call": ("none",),
    "functions": (),
    "include_reasoning": (),
    "logprob_token_ids": (),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (),
    "prediction": (),
    "prompt_cache_key": (),
    "prompt_cache_retention": (),
    "reasoning_effort": (),
    "service_tier": ("auto", "default"),
    "store": (),
    "thinking_token_budget": (),
    "tool_choice": ("none",),
    "tools": (),
    "verbosity": (),
    "web_search_options": (),
}


# What the template or the renderer gets by these names comes from elsewhere in the body, or not at all.
_TEMPLATE_ARGUMENTS = {
    "messages", "tools", "documents", "add_generation_prompt", "chat_template", "conversation", "tokenize",
}  # fmt: skip


def check_template_arguments(value: dict[str, Any]) -> dict[str, Any]:
    """A pydantic validator of further variables for a chat template."""
    if taken := _TEMPLATE_ARGUMENTS & value.keys():
        raise ValueError(f"{min(taken)} may not be set here")
    return value


class Message(Body):
    """One turn. `content` is a string, or a list of text parts, which are joined."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str
    name: Name | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _join_parts(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        for index, part in enumerate(value):
            if (
                not isinstance(part, dict)
                or part.get("type") != "text"
                or not isinstance(part.get("text"), str)
            ):
                raise ValueError(f"part {index} is not supported; allowed: {{'type': 'text', 'text': '...'}}")
        return "".join(part["text"] for part in value)

    def plain(self) -> dict[str, str]:
        """The message as a chat template reads it."""
        message = {"role": "system" if self.role == "developer" else self.role, "content": self.content}
        return message | ({"name": self.name} if self.name else {})


MetadataText = Annotated[str, StringConstraints(max_length=512)]


class ChatBody(FormedBody, GenerationBody):
    """A conversation to go on with. `max_tokens` is the older name of `max_completion_tokens`."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = _NEUTRAL

    messages: list[Message] = Field(min_length=1, max_length=4096)
    max_tokens: int | None = Field(default=None, ge=1, lt=INT64)
    max_completion_tokens: int | None = Field(default=None, ge=1, lt=INT64)
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    metadata: dict[MetadataText, MetadataText] = Field(default={}, max_length=16)
    chat_template_kwargs: dict[str, Any] = Field(default={}, max_length=64)
    add_generation_prompt: bool = True

    _arguments = field_validator("chat_template_kwargs")(check_template_arguments)

    @model_validator(mode="after")
    def _belong_together(self) -> "ChatBody":
        if self.top_logprobs is not None and not self.logprobs:
            raise Misfit("top_logprobs", "top_logprobs needs logprobs: true")
        return self

    @property
    def limit(self) -> int | None:
        """The bound on new tokens that was asked for, None for the room there is."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def wanted_logprobs(self) -> int | None:
        """Alternatives wanted beside each token; None for no log probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


def parse_chat(body: Mapping[str, Any]) -> ChatBody:
    """Raises UnsupportedParameter, UnknownParameter or InvalidField."""
    return parse(ChatBody, body)
