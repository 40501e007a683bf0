"""Tools that an answer may call: functions with their schemas, and which of them it has to call."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator

from serve.protocol.body import Body, Misfit
from serve.protocol.schemas import check_schema

MAX_TOOLS = 128
FunctionName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


class Function(Body):
    """One function."""

    name: FunctionName = Field(description="At most 64 letters, digits, underscores and dashes.")
    description: str = Field(default="", max_length=1 << 16, description="When and how to call it.")
    parameters: dict[str, Any] = Field(
        default=NO_PARAMETERS, description="A JSON Schema of the arguments, of type object."
    )
    strict: bool = Field(
        default=False, description="Arguments of a forced call fit the schema, whether it is true or not."
    )

    @field_validator("parameters")
    @classmethod
    def _object(cls, value: dict[str, Any]) -> dict[str, Any]:
        check_schema(value)
        if value.get("type", "object") != "object":
            raise ValueError(f"type is {value['type']!r}; arguments are of type 'object'")
        return value


class Tool(Body):
    """A function in the form of the chat API."""

    type: Literal["function"] = Field(description="No other kind is served.")
    function: Function

    def plain(self) -> dict[str, Any]:
        """As a chat template reads it."""
        function: dict[str, Any] = {"name": self.function.name}
        if self.function.description:
            function["description"] = self.function.description
        return {"type": "function", "function": function | {"parameters": self.function.parameters}}


class ChosenName(Body):
    """The name of a function."""

    name: str


class ChosenFunction(Body):
    """The one function that is to be called."""

    type: Literal["function"]
    function: ChosenName


ToolChoice = Literal["none", "auto", "required"] | ChosenFunction


def check_form(value: object) -> object:
    """A pydantic validator that says in one line which forms a tool_choice may have."""
    if value in ("none", "auto", "required"):
        return value
    if isinstance(value, dict) and value.get("type") == "function" and value.keys() == {"type", "function"}:
        function = value["function"]
        if isinstance(function, dict) and function.keys() == {"name"} and isinstance(function["name"], str):
            return value
    form = {"type": "function", "function": {"name": "..."}}
    raise ValueError(f"allowed: 'none', 'auto', 'required', {form}")


def forced(tools: Sequence[Tool], choice: ToolChoice | None) -> tuple[Function, ...]:
    """The functions of which one has to be called; none where the model decides."""
    functions = tuple(tool.function for tool in tools)
    if choice == "required":
        return functions
    if isinstance(choice, ChosenFunction):
        return tuple(function for function in functions if function.name == choice.function.name)
    return ()


def check_tools(tools: Sequence[Tool]) -> None:
    """Raises Misfit where two functions have one name."""
    names = [tool.function.name for tool in tools]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise Misfit("tools", f"tools has two functions of the name {name!r}; names must differ")


def check_choice(tools: Sequence[Tool], choice: ToolChoice | None) -> None:
    """Raises Misfit where tools and choice do not go together."""
    check_tools(tools)
    names = [tool.function.name for tool in tools]
    if choice in ("auto", "required") and not tools:
        raise Misfit("tool_choice", f"tool_choice is {choice!r}, which needs tools; allowed without: 'none'")
    if isinstance(choice, ChosenFunction) and choice.function.name not in names:
        known = ", ".join(map(repr, names)) or "none"
        raise Misfit(
            "tool_choice", f"tool_choice names {choice.function.name!r}; the functions of tools are: {known}"
        )
