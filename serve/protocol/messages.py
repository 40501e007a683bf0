"""The messages of a conversation: what a client may send, and how a chat template reads it."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from serve.errors import InvalidBody
from serve.protocol.body import Body, Misfit, read_json
from serve.protocol.sampling import Name

Role = Literal["system", "developer", "user", "assistant", "tool"]
CallId = Annotated[str, StringConstraints(min_length=1, max_length=256)]

# Fields of some roles only, each with the role that has it.
_OWNERS = {
    "tool_calls": "assistant",
    "reasoning": "assistant",
    "reasoning_content": "assistant",
    "refusal": "assistant",
    "tool_call_id": "tool",
}
# What clients send back of an answer they got, with the value that says nothing.
_EMPTY: Mapping[str, Any] = {"annotations": [], "tool_calls": []}


class CalledFunction(Body):
    """What a call was of. `arguments` is read from the JSON object that a client sends as a text."""

    name: Name = Field(description="The function that was called.")
    arguments: dict[str, Any] = Field(description="A JSON object, as text.")

    @field_validator("arguments", mode="before")
    @classmethod
    def _from_json(cls, value: object) -> object:
        if not isinstance(value, str):
            raise ValueError("expected a JSON object as a text")
        try:
            return read_json((value or "{}").encode())
        except (InvalidBody, UnicodeEncodeError) as error:
            raise ValueError("expected a JSON object as a text") from error


class ToolCall(Body):
    """A call that an earlier answer made. `index` is of the stream it came in, and says nothing."""

    id: CallId = Field(description="The id that the answer of the tool refers to.")
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = Field(default=None, ge=0)

    def plain(self) -> dict[str, Any]:
        """As a chat template reads it: the arguments are an object."""
        return {"id": self.id, "type": "function", "function": self.function.model_dump()}


class Message(Body):
    """One turn. `content` is a string, or a list of text parts, which are joined."""

    role: Role = Field(description="Who speaks; developer is read as system.")
    content: str = Field(default="", description="The text, or a list of parts of type text.")
    name: Name | None = Field(default=None, description="Who of several in this role.")
    tool_calls: list[ToolCall] = Field(
        default=[], max_length=128, description="Of an assistant's message: the calls it made."
    )
    tool_call_id: CallId | None = Field(
        default=None, description="Of a tool's message: the call that this is the result of."
    )
    reasoning: str | None = Field(
        default=None, description="Of an assistant's message: the thought before it."
    )
    reasoning_content: str | None = Field(default=None, description="The older name of reasoning.")
    refusal: str | None = Field(default=None, description="Of an assistant's message: read as its content.")

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, value: object) -> object:
        """null counts as not sent, as it does in the body."""
        if not isinstance(value, dict):
            return value
        empty = _EMPTY if value.get("role") == "assistant" else {}
        return {name: item for name, item in value.items() if item is not None and item != empty.get(name)}

    @field_validator("content", mode="before")
    @classmethod
    def _join_parts(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        return "".join(_part_text(index, part) for index, part in enumerate(value))

    @model_validator(mode="after")
    def _belong_together(self) -> "Message":
        sent = self.model_fields_set
        for field in sorted(sent & _OWNERS.keys()):
            if self.role != _OWNERS[field]:
                raise Misfit(field, f"{field} is of role {_OWNERS[field]!r} only, not of {self.role!r}")
        if self.role == "tool" and self.tool_call_id is None:
            raise Misfit("tool_call_id", "a message of role 'tool' needs tool_call_id")
        if "content" not in sent and not (self.role == "assistant" and sent & _OWNERS.keys()):
            raise Misfit(
                "content", "content is missing; only an assistant's message with tool_calls has none"
            )
        return self

    def plain(self) -> dict[str, Any]:
        """The message as a chat template reads it."""
        role = "system" if self.role == "developer" else self.role
        message: dict[str, Any] = {"role": role, "content": self.content or self.refusal or ""}
        if self.tool_calls:
            message["tool_calls"] = [call.plain() for call in self.tool_calls]
        thought = self.reasoning if self.reasoning is not None else self.reasoning_content
        if thought is not None:  # templates differ in the name they read it by
            message |= {"reasoning_content": thought, "reasoning": thought, "thinking": thought}
        further = {"name": self.name, "tool_call_id": self.tool_call_id}
        return message | {name: value for name, value in further.items() if value is not None}


def check_end(messages: Sequence[Message], add_generation_prompt: bool | None, continues: bool) -> None:
    """Raises Misfit for a last message that cannot be left open. continues: continue_final_message."""
    if not continues:
        return
    if add_generation_prompt:
        raise Misfit(
            "continue_final_message",
            "continue_final_message leaves the last message open and add_generation_prompt begins another; "
            "allowed: one of them",
        )
    if not messages[-1].content or messages[-1].tool_calls:
        raise Misfit("messages", "continue_final_message needs a last message that is text")


def _part_text(index: int, part: object) -> str:
    if isinstance(part, dict) and part.get("type") in ("text", "refusal"):
        text = part.get(part["type"])
        if isinstance(text, str):
            return text
    kind = part.get("type") if isinstance(part, dict) else None
    raise ValueError(
        f"part {index} has type {kind!r}, or no text; allowed: {{'type': 'text', 'text': '...'}}"
    )
