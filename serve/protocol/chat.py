"""Body of POST /v1/chat/completions."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from serve.protocol.body import Misfit, parse
from serve.protocol.messages import Message, check_end
from serve.protocol.sampling import INT64, NEUTRAL, GenerationBody
from serve.protocol.structured import OLDER_NAMES, FormedBody
from serve.protocol.tools import MAX_TOOLS, ChosenFunction, Tool, ToolChoice, check_choice, check_form, forced
from serve.talk import Calls, Talk

_NEUTRAL: dict[str, tuple[Any, ...]] = NEUTRAL | {
    "add_special_tokens": (False,),
    "audio": (),
    "chat_template": (),
    "echo": (False,),
    "function_call": (),
    "functions": (),
    "logprob_token_ids": (),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "prompt_cache_key": (),
    "prompt_cache_retention": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "thinking_token_budget": (),
    "verbosity": (),
    "web_search_options": (),
}


# What the template or the renderer gets by these names comes from elsewhere in the body, or not at all.
_TEMPLATE_ARGUMENTS = {
    "messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template",
    "conversation", "tokenize",
}  # fmt: skip


def check_template_arguments(value: dict[str, Any]) -> dict[str, Any]:
    """A pydantic validator of further variables for a chat template."""
    if taken := _TEMPLATE_ARGUMENTS & value.keys():
        raise ValueError(f"{min(taken)} may not be set here")
    return value


MetadataText = Annotated[str, StringConstraints(max_length=512)]


class ChatBody(FormedBody, GenerationBody):
    """A conversation to go on with. `max_tokens` is the older name of `max_completion_tokens`."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = _NEUTRAL
    renamed: ClassVar[Mapping[str, str]] = OLDER_NAMES | {
        "functions": "tools",
        "function_call": "tool_choice",
    }

    messages: list[Message] = Field(min_length=1, max_length=4096, description="The turns so far.")
    tools: list[Tool] = Field(
        default=[], min_length=1, max_length=MAX_TOOLS, description="Functions that the answer may call."
    )
    tool_choice: ToolChoice | None = Field(
        default=None,
        description="none leaves the tools out, auto (the default with tools) lets the model decide, "
        "required makes it call one or more, and a named function is called once.",
    )
    parallel_tool_calls: bool = Field(
        default=True, description="Whether an answer may have several calls; false keeps the first one only."
    )
    max_tokens: int | None = Field(
        default=None, ge=1, lt=INT64, description="The older name of max_completion_tokens."
    )
    max_completion_tokens: int | None = Field(
        default=None,
        ge=1,
        lt=INT64,
        description="Most tokens of an answer; as many as the model has room for where that is less, or no "
        "number is given.",
    )
    logprobs: bool = Field(default=False, description="Return the log probability of each token.")
    top_logprobs: int | None = Field(
        default=None, ge=0, le=20, description="Of so many likeliest tokens in each place, too."
    )
    metadata: dict[MetadataText, MetadataText] = Field(
        default={},
        max_length=16,
        description="Kept in the record; parent_request_id names the request whose answer is made anew.",
    )
    chat_template_kwargs: dict[str, Any] = Field(
        default={}, max_length=64, description="Further variables for the chat template."
    )
    add_generation_prompt: bool | None = Field(
        default=None, description="End the prompt with the beginning of an answer; by default true."
    )
    continue_final_message: bool = Field(
        default=False, description="Leave the last message open, so that the answer goes on with it."
    )
    documents: list[dict[str, str]] = Field(
        default=[], max_length=256, description="Texts for a chat template that knows documents."
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = Field(
        default=None,
        description="A variable for the chat template; none also sets its enable_thinking to false.",
    )
    include_reasoning: bool = Field(
        default=True, description="Whether the answer shows the thought before it, where there is one."
    )

    _arguments = field_validator("chat_template_kwargs")(check_template_arguments)
    _choice = field_validator("tool_choice", mode="before", json_schema_input_type=ToolChoice)(check_form)

    @model_validator(mode="after")
    def _belong_together(self) -> "ChatBody":
        if self.top_logprobs is not None and not self.logprobs:
            raise Misfit("top_logprobs", "top_logprobs needs logprobs: true")
        check_choice(self.tools, self.tool_choice)
        if self.calls.demanded and self.grammar is not None:
            raise Misfit("tool_choice", f"tool_choice makes the answer a call, not {self.grammar.param}")
        check_end(self.messages, self.add_generation_prompt, self.continue_final_message)
        return self

    @property
    def talk(self) -> Talk:
        """What the chat template gets."""
        variables: dict[str, Any] = {"documents": self.documents} if self.documents else {}
        if self.reasoning_effort is not None:
            variables["reasoning_effort"] = self.reasoning_effort
        if self.reasoning_effort == "none":
            variables["enable_thinking"] = False
        return Talk(
            tuple(message.plain() for message in self.messages),
            () if self.tool_choice == "none" else tuple(tool.plain() for tool in self.tools),
            variables | self.chat_template_kwargs,
            add_generation_prompt=self.add_generation_prompt is not False and not self.continue_final_message,
            continue_final_message=self.continue_final_message,
        )

    @property
    def calls(self) -> Calls:
        """The calls that the answer may hold."""
        demanded = {each.name: each.parameters for each in forced(self.tools, self.tool_choice)}
        functions = () if self.tool_choice == "none" else tuple(tool.function for tool in self.tools)
        offered = {each.name: each.parameters for each in functions}
        return Calls(
            demanded, offered, self.parallel_tool_calls, isinstance(self.tool_choice, ChosenFunction)
        )

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
