"""A turn of the Responses API as a chat: items become messages, and parameters get the names of a chat's.

From there on both are one. Knows no HTTP and no database.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

from serve.errors import BadRequest, InvalidBody, InvalidField, RemoteError, brief
from serve.protocol.body import read_json
from serve.protocol.chat import ChatBody, parse_chat
from serve.protocol.response_items import (
    FunctionCallItem,
    FunctionCallOutputItem,
    Item,
    MessageItem,
    ReasoningItem,
)
from serve.protocol.responses import (
    AllowedTools,
    ChosenFunction,
    FunctionTool,
    JsonSchemaFormat,
    PlainFormat,
    ResponseBody,
)
from serve.protocol.sampling import GenerationBody

Message = dict[str, Any]

_SHARED = GenerationBody.model_fields.keys() - {"n", "stream_options"}

_OWN_NAMES = (
    ("max_completion_tokens", "max_output_tokens"),
    ("response_format.json_schema", "text.format"),
    ("response_format", "text.format"),
    ("reasoning_effort", "reasoning.effort"),
    ("verbosity", "text.verbosity"),
    (".function.", "."),
)
"""Parts of the names of a chat's parameters -> those of this API, where they differ."""


def to_chat(body: ResponseBody, items: Sequence[Item]) -> ChatBody:
    """The chat that a turn is. items: the whole conversation with what is handed in. Raises BadRequest."""
    asked: dict[str, Any] = {
        **body.model_dump(include=set(_SHARED & body.model_fields_set)),
        "messages": list(messages_of(body.instructions, items)),
        "metadata": body.metadata,
        "max_completion_tokens": body.max_output_tokens,
        "reasoning_effort": body.reasoning.effort if body.reasoning else None,
        "verbosity": None if body.text.verbosity == "medium" else body.text.verbosity,
        "response_format": _response_format(body),
        **_logprobs(body),
        **_tools(body),
    }
    try:
        return parse_chat(asked)
    except BadRequest as error:
        raise in_own_names(error) from error


Refusal = TypeVar("Refusal", BadRequest, RemoteError)


def in_own_names(error: Refusal) -> Refusal:
    """A refusal of the chat in the words of this API."""
    if error.param is None:
        return error
    if error.param.startswith("messages"):  # they are others than the items of which they were made
        error.param = "input"
        return error
    own = error.param
    for theirs, ours in _OWN_NAMES:
        own = own.replace(theirs, ours)
    error.args = (str(error).replace(error.param, own),)
    error.param = own
    return error


def _logprobs(body: ResponseBody) -> dict[str, Any]:
    wanted = body.wanted_logprobs
    return {} if wanted is None else {"logprobs": True, "top_logprobs": wanted}


def _response_format(body: ResponseBody) -> dict[str, Any] | None:
    form = body.text.format
    if isinstance(form, PlainFormat):
        return None
    if isinstance(form, JsonSchemaFormat):
        schema = form.model_dump(by_alias=True, exclude={"type"}, exclude_none=True)
        return {"type": "json_schema", "json_schema": schema}
    return {"type": form.type}


def _tools(body: ResponseBody) -> dict[str, Any]:
    """The tools that may be called, and the choice among them."""
    if not body.tools:
        return {}
    tools, choice = body.tools, body.tool_choice
    if isinstance(choice, AllowedTools):
        allowed = {tool.name for tool in choice.tools}
        tools, choice = [tool for tool in tools if tool.name in allowed], choice.mode
    shown: Any = choice
    if isinstance(choice, ChosenFunction):
        shown = {"type": "function", "function": {"name": choice.name}}
    return {
        "tools": [_tool(tool) for tool in tools],
        "tool_choice": shown,
        "parallel_tool_calls": body.parallel_tool_calls,
    }


def _tool(tool: FunctionTool) -> dict[str, Any]:
    return {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_none=True)}


def messages_of(instructions: str | None, items: Sequence[Item]) -> Iterator[Message]:
    """Messages of a chat. What a model gave between two turns of others is one message of the assistant."""
    if instructions is not None:
        yield {"role": "system", "content": instructions}
    for by_model, run in groupby(items, key=_is_models):
        if by_model:
            yield from _assistant(list(run))
        else:
            yield from map(_other, run)


def _is_models(item: Item) -> bool:
    if isinstance(item, MessageItem):
        return item.role == "assistant"
    return not isinstance(item, FunctionCallOutputItem)


def _other(item: Item) -> Message:
    if isinstance(item, FunctionCallOutputItem):
        return {"role": "tool", "tool_call_id": item.call_id, "content": item.text}
    assert isinstance(item, MessageItem), "the model's own items are put together elsewhere"
    return {"role": item.role, "content": item.text}


def _assistant(items: Sequence[Item]) -> Iterator[Message]:
    """Thoughts, text and calls belong together; texts without a call between them are messages apart."""
    message: Message = {}
    for item in items:
        if "content" in message and "tool_calls" not in message and not isinstance(item, FunctionCallItem):
            yield _whole(message)
            message = {}
        match item:
            case ReasoningItem():
                message["reasoning_content"] = message.get("reasoning_content", "") + item.text
            case MessageItem():
                message["content"] = message.get("content", "") + item.text
            case FunctionCallItem():
                message.setdefault("tool_calls", []).append(_call(item))
    yield _whole(message)


def refuse_cut_calls(items: Sequence[Item], *, kept: bool) -> None:
    """Raises InvalidField for a call without a JSON object of arguments, as one that was cut is.

    kept: the items came with previous_response_id.
    """
    for place, item in enumerate(items):
        if not isinstance(item, FunctionCallItem) or _is_object(item.arguments):
            continue
        param = "previous_response_id" if kept else f"input[{place}].arguments"
        raise InvalidField(
            f"{param}: the call {brief(item.call_id)} of {brief(item.name)} has the arguments "
            f"{brief(item.arguments)}; expected a JSON object as a text, which a call that was cut is not",
            param,
        )


def _is_object(arguments: str) -> bool:
    try:
        read_json((arguments or "{}").encode())
    except (InvalidBody, UnicodeEncodeError):
        return False
    return True


def _call(item: FunctionCallItem) -> Mapping[str, Any]:
    function = {"name": item.name, "arguments": item.arguments}
    return {"id": item.call_id, "type": "function", "function": function}


def _whole(message: Message) -> Message:
    return {"role": "assistant", "content": None if "tool_calls" in message else "", **message}
