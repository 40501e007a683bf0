"""Bodies and queries of the Responses API: what is taken, and by which name the rest is refused."""

from typing import Any

import pytest

from serve.answers.shared import page_of
from serve.errors import BadRequest, InvalidField
from serve.protocol.responses import parse_items_query, parse_response, parse_response_query

TOOL = {"type": "function", "name": "sum", "parameters": {"type": "object"}}
ITEMS = [{"id": f"msg_{number}"} for number in range(5)]


def body(**fields: Any) -> Any:
    return parse_response({"model": "m", "input": "hi", **fields})


def test_a_text_is_a_message_of_the_user() -> None:
    (item,) = body().items
    assert (item.type, item.role, item.text) == ("message", "user", "hi")


def test_defaults_are_openais() -> None:
    made = body()
    assert (made.store, made.stream, made.parallel_tool_calls, made.wanted_logprobs) == (
        True,
        False,
        True,
        None,
    )
    assert made.text.format.type == "text"


@pytest.mark.parametrize(
    "fields",
    [
        {"background": False, "service_tier": "auto", "truncation": "disabled", "conversation": None},
        {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "max_tool_calls": 3},
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "sum"}},
        {"tools": [TOOL | {"strict": None, "description": "adds"}], "tool_choice": "none"},
        {
            "tools": [TOOL],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "sum"}],
            },
        },
        {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
        {"text": {"format": {"type": "json_schema", "name": "s", "schema": {}, "strict": True}}},
        {"reasoning": {"effort": "high", "summary": None}},
        {"stream": True, "stream_options": {"include_obfuscation": False}},
        {"prompt_cache_key": "k", "safety_identifier": "s", "metadata": {"a": "b"}},
    ],
)
def test_what_is_served_is_taken(fields: dict[str, Any]) -> None:
    body(**fields)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": 5}, "input"),
        ({"input": []}, "input"),
        ({"input": [7]}, "input[0]"),
        ({"input": [{"type": "image_generation_call", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": "x", "name": "y"}]}, "input[0].name"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": 5}]}, "input[0].output"),
        ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "input[0].encrypted_content"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0].type"),
        ({"tools": [TOOL | {"defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tools": [TOOL | {"name": "a b"}]}, "tools[0].name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": {"type": "mcp", "server_label": "x"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "none"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice.name"),
        (
            {
                "tools": [TOOL],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{"type": "function", "name": "none"}],
                },
            },
            "tool_choice",
        ),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "s"}}}, "text.format.schema"),
        ({"text": {"verbosity": "loud"}}, "text.verbosity"),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": True}}, "stream_options.include_usage"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
        ),
        (
            {"stream": True, "stream_options": {"continuous_usage_stats": True}},
            "stream_options.continuous_usage_stats",
        ),
        ({"return_token_ids": True}, "return_token_ids"),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ],
)
def test_the_rest_is_refused_by_its_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        body(**fields)
    assert caught.value.param == param


def page(parameters: dict[str, str]) -> dict[str, Any]:
    query = parse_items_query(parameters)
    return page_of(query.behind(ITEMS), query.limit)


def test_pages_follow_each_other() -> None:
    newest = page({"limit": "2"})
    assert [item["id"] for item in newest["data"]] == ["msg_4", "msg_3"]
    assert (newest["first_id"], newest["last_id"], newest["has_more"]) == ("msg_4", "msg_3", True)
    rest = page({"after": "msg_3"})
    assert [item["id"] for item in rest["data"]] == ["msg_2", "msg_1", "msg_0"]
    assert not rest["has_more"]
    oldest = page({"order": "asc", "after": "msg_4"})
    assert (oldest["data"], oldest["first_id"], oldest["last_id"]) == ([], None, None)
    with pytest.raises(InvalidField):
        page({"after": "msg_9"})


def test_queries_take_what_changes_nothing() -> None:
    parse_response_query({"stream": "false"})
    with pytest.raises(BadRequest, match="stream"):
        parse_response_query({"stream": "true"})
    with pytest.raises(BadRequest, match="limit"):
        parse_items_query({"limit": "101"})
