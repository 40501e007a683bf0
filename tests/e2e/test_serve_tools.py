"""Tools with a small model that was taught none: forced calls are valid, in a stream as in the whole."""

import json
from typing import Any

import jsonschema
import pytest

from tests.e2e.conftest import BASE

QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris in celsius?"}]
WEATHER: Any = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "unit"],
}
CLOCK: Any = {
    "type": "object",
    "properties": {"zone": {"type": "string", "maxLength": 12}},
    "required": ["zone"],
}
TOOLS: Any = [
    {
        "type": "function",
        "function": {"name": "get_weather", "description": "The weather.", "parameters": WEATHER},
    },
    {"type": "function", "function": {"name": "get_time", "description": "The time.", "parameters": CLOCK}},
]
SCHEMAS = {"get_weather": WEATHER, "get_time": CLOCK}
NAMED: Any = {"type": "function", "function": {"name": "get_time"}}


def check(calls: Any) -> None:
    assert calls
    for call in calls:
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])


@pytest.mark.parametrize(("choice", "finish"), [("required", "tool_calls"), (NAMED, "stop")])
def test_a_forced_call_is_valid(platform: Any, choice: Any, finish: str) -> None:
    asked: Any = {
        "model": BASE,
        "messages": QUESTION,
        "tools": TOOLS,
        "tool_choice": choice,
        "temperature": 0,
        "max_tokens": 400,
        "parallel_tool_calls": False,
    }
    with platform.client as client:
        whole = client.chat.completions.create(**asked).choices[0]
        with client.chat.completions.stream(**asked) as stream:
            streamed = stream.get_final_completion().choices[0]
    assert whole.message.content is None
    assert whole.finish_reason == streamed.finish_reason == finish
    check(whole.message.tool_calls)
    assert len(whole.message.tool_calls) == 1
    if choice is NAMED:
        assert whole.message.tool_calls[0].function.name == "get_time"
    ours, theirs = (
        [(call.function.name, call.function.arguments) for call in each.message.tool_calls]
        for each in (whole, streamed)
    )
    assert ours == theirs


def test_an_answer_to_a_result_goes_on(platform: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_time", "arguments": '{"zone": "CET"}'}}
    talk = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
    ]
    with platform.client as client:
        answer = client.chat.completions.create(
            model=BASE, messages=talk, tools=TOOLS, tool_choice="none", max_tokens=16, temperature=0
        )
    assert answer.choices[0].message.content
    assert answer.choices[0].message.tool_calls is None


def test_a_forced_call_that_is_cut_says_so(platform: Any) -> None:
    with platform.client as client:
        choice = client.chat.completions.create(
            model=BASE, messages=QUESTION, tools=TOOLS, tool_choice=NAMED, max_tokens=22, temperature=0
        ).choices[0]
    assert choice.finish_reason == "length"
    with pytest.raises(ValueError):
        json.loads(choice.message.tool_calls[0].function.arguments)
