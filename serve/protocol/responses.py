"""Body of POST /v1/responses and the queries about what was kept."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    field_validator,
    model_validator,
)

from serve.errors import InvalidField
from serve.protocol.body import Body, Misfit, parse
from serve.protocol.chat import MetadataText
from serve.protocol.response_items import FunctionName, InputItem, Item, ItemId, ItemReference
from serve.protocol.sampling import INT64, NEUTRAL, GenerationBody, UserKey

MAX_ITEMS = 4096
MAX_TOOLS = 128
LOGPROBS = "message.output_text.logprobs"

ResponseId = Annotated[str, StringConstraints(min_length=1, max_length=128)]

# Parameters of this API that are not served, each with the values that mean "off".
_NEUTRAL: dict[str, tuple[Any, ...]] = NEUTRAL | {
    "background": (False,),
    "background_options": (),
    "context_management": ([],),
    "conversation": (),
    "moderation": (),
    "prompt": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "response_format": (),
    "service_tier": ("auto", "default"),
    "truncation": ("disabled",),
}


_NOT_SHOWN = ("prompt_logprobs", "return_token_ids", "return_tokens_as_token_ids")
"""What the answers of this API have no place for."""


class FunctionTool(Body):
    """A function that the model may call. Other types of tools are not served."""

    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = Field(default=None, description="JSON Schema of the arguments.")
    strict: bool | None = None


class ChosenFunction(Body):
    """The function to call."""

    type: Literal["function"]
    name: FunctionName


class AllowedTools(Body):
    """Those of the tools that may be called this time."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[ChosenFunction] = Field(min_length=1, max_length=MAX_TOOLS)


def _choice_kind(value: object) -> str | None:
    """The type of a choice of tools; a word has none."""
    if isinstance(value, str):
        return "word"
    return value.get("type") if isinstance(value, dict) else getattr(value, "type", None)


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("word")]
    | Annotated[ChosenFunction, Tag("function")]
    | Annotated[AllowedTools, Tag("allowed_tools")],
    Discriminator(
        _choice_kind,
        custom_error_type="tool_choice",
        custom_error_message="expected none, auto, required, or a choice of type function or allowed_tools",
    ),
]


class PlainFormat(Body):
    """Text as it comes."""

    type: Literal["text"]


class JsonObjectFormat(Body):
    """Any JSON object."""

    type: Literal["json_object"]


class JsonSchemaFormat(Body):
    """JSON that fits a schema."""

    type: Literal["json_schema"]
    name: FunctionName
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextConfig(Body):
    """How the text is to be."""

    format: Annotated[PlainFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")] = (
        PlainFormat(type="text")
    )
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningConfig(Body):
    """How much is to be thought. Summaries of thoughts are not made."""

    effort: str | None = None
    summary: None = None
    generate_summary: None = None


_Input = str | Annotated[list[InputItem], Field(min_length=1, max_length=MAX_ITEMS)]


class ResponseBody(GenerationBody):
    """A turn of a conversation, alone or on from an earlier one."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = _NEUTRAL

    n: int = Field(default=1, ge=1, le=1, description="An answer of this API is one.")
    input: list[InputItem] = Field(
        min_length=1, max_length=MAX_ITEMS, description="A text of the user, or items in their order."
    )
    instructions: str | None = Field(default=None, description="System message of this turn alone.")
    previous_response_id: ResponseId | None = Field(
        default=None, description="A kept answer of the same tenant to go on from."
    )
    store: bool = Field(default=True, description="Keep the answer, to be read and gone on from.")
    max_output_tokens: int | None = Field(
        default=None, ge=1, lt=INT64, description="Bound on new tokens, reasoning included."
    )
    include: list[Literal["message.output_text.logprobs"]] = Field(
        default=[], max_length=8, description="What to show beside the text."
    )
    top_logprobs: int | None = Field(
        default=None, ge=0, le=20, description="Alternatives beside each token; shows log probabilities."
    )
    metadata: dict[MetadataText, MetadataText] = Field(
        default={},
        max_length=16,
        description="Kept with the answer; parent_request_id names a regeneration's origin.",
    )
    tools: list[FunctionTool] = Field(
        default=[], max_length=MAX_TOOLS, description="Functions that the model may call."
    )
    tool_choice: ToolChoice | None = Field(
        default=None, description="Whether and which function to call; auto where there are tools."
    )
    parallel_tool_calls: bool = Field(default=True, description="Whether one answer may hold several calls.")
    text: TextConfig = Field(default=TextConfig(), description="Form of the text, and its verbosity.")
    reasoning: ReasoningConfig | None = Field(default=None, description="Reasoning effort.")
    max_tool_calls: int | None = Field(
        default=None, ge=1, lt=INT64, description="Bounds calls of built-in tools, of which there are none."
    )
    prompt_cache_key: UserKey | None = Field(
        default=None, description="A hint for caches that are chosen by it; the prefix cache here needs none."
    )

    @field_validator("input", mode="before", json_schema_input_type=_Input)
    @classmethod
    def _one_message(cls, value: object) -> object:
        return [{"role": "user", "content": value}] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _belong_together(self) -> "ResponseBody":
        if self.stream_options is not None:
            self._check_stream_options()
        for name in _NOT_SHOWN:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise Misfit(name, f"{name} is for chat completions and completions")
        self._check_choice()
        return self

    def _check_stream_options(self) -> None:
        if not self.stream:
            raise Misfit("stream_options", "stream_options needs stream: true")
        for name in ("include_usage", "continuous_usage_stats"):
            if getattr(self.stream_options, name):
                raise Misfit(
                    f"stream_options.{name}",
                    f"stream_options.{name} is for chat completions; here the last event has the usage",
                )

    def _check_choice(self) -> None:
        names = {tool.name for tool in self.tools}
        match self.tool_choice:
            case ChosenFunction(name=name) if name not in names:
                raise Misfit("tool_choice", f"tool_choice names {name!r}, which is not among the tools")
            case AllowedTools(tools=tools) if missing := {tool.name for tool in tools} - names:
                raise Misfit(
                    "tool_choice", f"tool_choice allows {min(missing)!r}, which is not among the tools"
                )
            case "required" if not names:
                raise Misfit("tool_choice", "tool_choice is 'required' and there are no tools")
            case _:
                return

    @property
    def items(self) -> list[Item | ItemReference]:
        """What is handed in."""
        return list(self.input)

    @property
    def wanted_logprobs(self) -> int | None:
        """Alternatives wanted beside each token; None for no log probabilities."""
        return (self.top_logprobs or 0) if self.top_logprobs or LOGPROBS in self.include else None


class ResponseQuery(Body):
    """What may be said of reading a kept answer: it is shown as it was given."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "include": (),
        "include_obfuscation": ("false",),
        "starting_after": (),
        "stream": ("false",),
    }


class InputItemsQuery(Body):
    """A page of what was handed in: `limit` items that come after the item `after`."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"include": ()}
    model_config = ConfigDict(strict=False)

    limit: int = Field(default=20, ge=1, le=100, description="Most items of a page.")
    after: ItemId | None = Field(default=None, description="Id of the last item of the page before.")
    order: Literal["asc", "desc"] = Field(default="desc", description="Oldest first, or newest first.")

    def behind(self, items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The items of this page and of those that follow. Raises InvalidField for an unknown `after`."""
        ordered = list(items if self.order == "asc" else reversed(items))
        if self.after is not None:
            ids = [item["id"] for item in ordered]
            if self.after not in ids:
                raise InvalidField(f"after is {self.after!r}, which is no item of this response", "after")
            ordered = ordered[ids.index(self.after) + 1 :]
        return ordered


def parse_response(body: Mapping[str, Any]) -> ResponseBody:
    """Raises UnsupportedParameter, UnknownParameter or InvalidField."""
    return parse(ResponseBody, body)


def parse_response_query(parameters: Mapping[str, str]) -> ResponseQuery:
    """Raises UnsupportedParameter or UnknownParameter."""
    return parse(ResponseQuery, parameters)


def parse_items_query(parameters: Mapping[str, str]) -> InputItemsQuery:
    """Raises UnsupportedParameter, UnknownParameter or InvalidField."""
    return parse(InputItemsQuery, parameters)
