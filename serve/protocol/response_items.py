"""Items that a request of the Responses API hands in: messages, calls and what they gave, thoughts.

What an earlier answer gave out may be handed in again as it was.
"""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, field_validator

from serve.protocol.body import Body

FunctionName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
CallId = Annotated[str, StringConstraints(min_length=1, max_length=256)]
ItemId = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Role = Literal["user", "assistant", "system", "developer"]


class InputText(Body):
    """Text handed in."""

    type: Literal["input_text"]
    text: str


class OutputText(Body):
    """Text that a model gave. Its log probabilities change nothing when it is handed in again."""

    type: Literal["output_text"]
    text: str
    annotations: list[dict[str, Any]] = Field(default=[])
    logprobs: list[dict[str, Any]] | None = None


class Refusal(Body):
    """A model's refusal."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        """The refusal as text."""
        return self.refusal


TextPart = Annotated[InputText | OutputText | Refusal, Field(discriminator="type")]


class _Item(Body):
    id: ItemId | None = Field(default=None, description="Kept where given; else made.")
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class MessageItem(_Item):
    """One turn of a conversation."""

    type: Literal["message"] = "message"
    role: Role
    content: list[TextPart] = Field(description="A text, or a list of parts of text.")
    phase: None = None

    @field_validator("content", mode="before", json_schema_input_type=str | list[TextPart])
    @classmethod
    def _one_part(cls, value: object) -> object:
        return [{"type": "input_text", "text": value}] if isinstance(value, str) else value

    @property
    def text(self) -> str:
        """All of its text."""
        return "".join(part.text for part in self.content)


class FunctionCallItem(_Item):
    """A call of a function that a model made."""

    type: Literal["function_call"]
    call_id: CallId
    name: FunctionName
    arguments: str = Field(description="JSON text.")
    caller: None = None
    namespace: None = None


class FunctionCallOutputItem(_Item):
    """What a called function gave."""

    type: Literal["function_call_output"]
    call_id: CallId
    output: str | list[InputText]
    caller: None = None
    namespace: None = None

    @property
    def text(self) -> str:
        """The output as text."""
        return self.output if isinstance(self.output, str) else "".join(part.text for part in self.output)


class SummaryText(Body):
    """A part of a thought's summary."""

    type: Literal["summary_text"]
    text: str


class ReasoningText(Body):
    """A part of a thought."""

    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(_Item):
    """A thought that came before an answer."""

    type: Literal["reasoning"]
    summary: list[SummaryText] = Field(default=[])
    content: list[ReasoningText] | None = None
    encrypted_content: None = None

    @property
    def text(self) -> str:
        """The thought."""
        return "".join(part.text for part in self.content or ())


class ItemReference(Body):
    """An item of a kept answer, or of what was handed in for it, by its id."""

    type: Literal["item_reference"] = "item_reference"
    id: ItemId


_KINDS = ("message", "function_call", "function_call_output", "reasoning", "item_reference")


def _kind(value: object) -> str | None:
    """The type of an item; one without is a message, or a reference where it has nothing but an id."""
    if isinstance(value, dict):
        kind = value.get("type") or ("item_reference" if value.keys() <= {"id", "type"} else "message")
    else:
        kind = getattr(value, "type", None)
    return kind if kind in _KINDS else None


InputItem = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCallItem, Tag("function_call")]
    | Annotated[FunctionCallOutputItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[ItemReference, Tag("item_reference")],
    Discriminator(
        _kind,
        custom_error_type="item_type",
        custom_error_message=f"expected an item of one of the types {', '.join(_KINDS)}",
    ),
]

Item = MessageItem | FunctionCallItem | FunctionCallOutputItem | ReasoningItem
