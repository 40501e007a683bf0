"""What a chat may say of messages, tools and its template, and what the template gets of it."""

from __future__ import annotations

from typing import Any

import pytest

from serve.errors import BadRequest
from serve.protocol.chat import ChatBody, parse_chat

USER = {"role": "user", "content": "hi"}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}
OTHER = {"type": "function", "function": {"name": "get_time", "description": "What time it is."}}
NAMED = {"type": "function", "function": {"name": "get_time"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
ANY_OBJECT = {"type": "json_object"}
BUILT_IN = {"type": "web_search"}


def body(*messages: dict[str, Any], **fields: Any) -> ChatBody:
    return parse_chat({"model": "m", "messages": list(messages) or [USER], **fields})


def refused(*messages: dict[str, Any], **fields: Any) -> BadRequest:
    with pytest.raises(BadRequest) as raised:
        body(*messages, **fields)
    return raised.value


def test_a_conversation_with_calls_is_given_to_the_template() -> None:
    talk = body(
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None, "annotations": []},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "assistant", "content": "Sunny.", "reasoning": "hm", "tool_calls": []},
        {"role": "assistant", "refusal": "No."},
    ).talk
    function = {"name": "get_weather", "arguments": {"city": "Rome"}}
    thought = {"reasoning": "hm", "reasoning_content": "hm", "thinking": "hm"}
    assert talk.messages == (
        {"role": "system", "content": "ab"},
        USER,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "sunny", "tool_call_id": "c1"},
        {"role": "assistant", "content": "Sunny.", **thought},
        {"role": "assistant", "content": "No."},
    )


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id"),
        ({"role": "tool", "tool_call_id": "c1"}, "messages[0].content"),
        ({"role": "assistant"}, "messages[0].content"),
        ({"role": "function", "content": "x", "name": "f"}, "messages[0].role"),
        ({"role": "user", "content": "x", "tool_calls": [CALL]}, "messages[0].tool_calls"),
        ({"role": "user", "content": "x", "tool_call_id": "c1"}, "messages[0].tool_call_id"),
        ({"role": "user", "content": "x", "reasoning": "hm"}, "messages[0].reasoning"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content"),
        ({"role": "assistant", "tool_calls": [CALL | {"id": None}]}, "messages[0].tool_calls[0].id"),
    ],
)
def test_odd_messages_are_refused_by_name(message: dict[str, Any], param: str) -> None:
    assert refused(message).param == param


def test_a_part_that_is_no_text_is_named() -> None:
    parts = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    assert "part 1 has type 'image_url'" in str(refused({"role": "user", "content": parts}))


@pytest.mark.parametrize(
    "arguments",
    [
        '{"city": ',
        "[1]",
        "5",
        {"city": "Rome"},
        "[" * 100_000,
        '{"a": NaN}',
        '{"a": "\\ud800"}',
        '{"a": ' + "[" * 200 + "]" * 200 + "}",
    ],
)
def test_arguments_of_earlier_calls_are_json_objects(arguments: Any) -> None:
    call = CALL | {"function": {"name": "f", "arguments": arguments}}
    error = refused({"role": "assistant", "tool_calls": [call]})
    assert error.param == "messages[0].tool_calls[0].function.arguments"
    assert "expected a JSON object as a text" in str(error)


def test_tools_are_given_to_the_template_with_their_parameters() -> None:
    shown = body(tools=[TOOL | {"function": {**TOOL["function"], "strict": True}}, OTHER]).talk.tools
    empty = {"type": "object", "properties": {}}
    assert shown == (
        TOOL,
        {"type": "function", "function": {**OTHER["function"], "parameters": empty}},
    )
    assert list(shown[1]["function"]) == ["name", "description", "parameters"]


def test_the_choice_says_what_is_demanded() -> None:
    tools = [TOOL, OTHER]
    assert body(tools=tools).calls.demanded == body(tools=tools, tool_choice="auto").calls.demanded == {}
    required = body(tools=tools, tool_choice="required").calls
    assert (list(required.demanded), required.parallel, required.named) == (
        ["get_weather", "get_time"],
        True,
        False,
    )
    named = body(tools=tools, tool_choice=NAMED, parallel_tool_calls=False).calls
    assert (list(named.demanded), named.parallel, named.named) == (["get_time"], False, True)
    assert body(tools=tools, tool_choice="none").talk.tools == ()
    assert body(tool_choice="none").talk.tools == ()


def function(**fields: Any) -> list[Any]:
    return [{"type": "function", "function": {"name": "f", **fields}}]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": []}, "tools"),
        ({"tools": [OTHER] * 2}, "tools"),
        ({"tools": function(name="a b")}, "tools[0].function.name"),
        ({"tools": function(name="a" * 65)}, "tools[0].function.name"),
        ({"tools": function(name="")}, "tools[0].function.name"),
        ({"tools": function(parameters="x")}, "tools[0].function.parameters"),
        ({"tools": function(parameters={"type": "string"})}, "tools[0].function.parameters"),
        ({"tools": function(parameters={"description": "x" * (200 << 10)})}, "tools[0].function.parameters"),
        ({"tools": function(parameters={"$ref": "http://example"})}, "tools[0].function.parameters"),
        ({"tools": function(returns={})}, "tools[0].function.returns"),
        ({"tools": [BUILT_IN]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": f"f{n}"}} for n in range(129)]}, "tools"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": NAMED}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": NAMED}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {}}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": 5}, "tool_choice"),
        ({"tools": [TOOL], "parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"tools": [TOOL], "tool_choice": "required", "response_format": ANY_OBJECT}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"continue_final_message": True, "messages": [USER | {"content": ""}]}, "messages"),
        ({"documents": [{"title": 5}]}, "documents[0].title"),
        ({"chat_template": "{{ messages }}"}, "chat_template"),
        ({"chat_template_kwargs": {"continue_final_message": True}}, "chat_template_kwargs"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as raised:
        parse_chat({"model": "m", "messages": [USER], **fields})
    assert raised.value.param == param


def test_older_forms_name_the_newer_one() -> None:
    assert "allowed: tools in its place" in str(refused(functions=[{"name": "f"}]))
    assert "allowed: tool_choice in its place" in str(refused(function_call="none"))


def test_variables_for_the_template() -> None:
    assert body().talk.variables == {}
    assert body(reasoning_effort="high").talk.variables == {"reasoning_effort": "high"}
    none = body(reasoning_effort="none", documents=[{"title": "a"}]).talk.variables
    assert none == {"reasoning_effort": "none", "enable_thinking": False, "documents": [{"title": "a"}]}
    own = body(reasoning_effort="none", chat_template_kwargs={"enable_thinking": True}).talk.variables
    assert own["enable_thinking"] is True


def test_how_the_prompt_ends() -> None:
    def ends(**fields: Any) -> tuple[bool, bool]:
        talk = body(**fields).talk
        return talk.add_generation_prompt, talk.continue_final_message

    assert ends() == ends(add_generation_prompt=True) == (True, False)
    assert ends(add_generation_prompt=False) == (False, False)
    assert ends(continue_final_message=True) == (False, True)
    assert ends(continue_final_message=True, add_generation_prompt=False) == (False, True)
