"""Tools as clients see them: forced calls, streams that join to the whole, and their records.

An adapter's own template has the tools in few words: the context of the model here is short.
"""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

import db.requests

TURNS = (
    "{% for m in messages %}{{ m.role }} {{ m.content }}"
    "{{ m.tool_calls | tojson if m.tool_calls }}\n{% endfor %}"
)
TEMPLATES = {
    "hermes": "{% if tools %}<tool_call>{{ tools | map(attribute='function.name') | join }}\n{% endif %}"
    + TURNS,
    "mistral": "{% if tools %}[TOOL_CALLS][ARGS]{% endif %}" + TURNS,
}
TURN: Any = {
    "type": "object",
    "properties": {"way": {"enum": ['"l"\n}{', "ü🙂"]}, "steps": {"enum": [1, 22]}},
    "required": ["way", "steps"],
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "turn", "parameters": TURN}},
    {"type": "function", "function": {"name": "stop_here"}},
]
SHORT: Any = [
    {"type": "function", "function": {"name": "z"}},
    {
        "type": "function",
        "function": {"name": "a", "parameters": {"properties": {"a": {"enum": [1, "}"]}}, "required": ["a"]}},
    },
]
NAMED: Any = {"type": "function", "function": {"name": "turn"}}
SEEDS = range(6)


@pytest.fixture(scope="module", autouse=True)
def adapters(served: Any) -> None:
    """Adapters that are named by the form of calls that their templates show."""
    for seed, (name, template) in enumerate(TEMPLATES.items(), start=77):
        path = served.make_adapter(f"tools-{name}", seed=seed)
        (served.config.adapter_roots[0] / path / "chat_template.jinja").write_text(template)
        assert served.load(name, path).status_code == 200


def asked(**options: Any) -> dict[str, Any]:
    talk = [{"role": "user", "content": "go"}]
    return {"model": "hermes", "messages": talk, "tools": TOOLS, "max_tokens": 440, "seed": 1, **options}


def arguments(calls: Any) -> list[tuple[str, Any]]:
    made = [(call.function.name, json.loads(call.function.arguments)) for call in calls]
    for name, values in made:
        if name == "turn":
            assert values.keys() == {"way", "steps"}
            assert values["way"] in TURN["properties"]["way"]["enum"]
        else:
            assert (name, values) == ("stop_here", {})
    return made


def test_required_calls_fit_their_schemas_and_a_stream_joins_to_them(served: Any) -> None:
    options = asked(model="mistral", tools=SHORT, tool_choice="required", max_tokens=None)
    with served.client as client:
        whole = client.chat.completions.create(**options).choices[0]
        with client.chat.completions.stream(**options) as stream:
            streamed = stream.get_final_completion().choices[0]
    ours, theirs = whole.message.tool_calls or [], streamed.message.tool_calls or []
    assert len(ours) > 1
    assert {call.function.name for call in ours} <= {"a", "z"}
    assert {call.function.arguments for call in ours} <= {"{}", '{"a": 1}', '{"a": "}"}'}
    assert [call.function.arguments for call in ours] == [call.function.arguments for call in theirs]
    assert [call.function.name for call in ours] == [call.function.name for call in theirs]
    assert len({call.id for call in ours}) == len(ours)
    assert whole.finish_reason == streamed.finish_reason == "tool_calls"
    assert whole.message.content is None


def test_there_is_one_call_where_there_may_not_be_several(served: Any) -> None:
    with served.client as client:
        for seed in SEEDS:
            options = asked(tool_choice="required", seed=seed, parallel_tool_calls=False)
            (choice,) = client.chat.completions.create(**options).choices
            assert (choice.finish_reason, len(arguments(choice.message.tool_calls))) == ("tool_calls", 1)


def test_a_named_function_is_called_once_and_ends_with_stop(served: Any) -> None:
    with served.client as client:
        answer = client.chat.completions.create(**asked(tool_choice=NAMED, n=3))
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        ((name, _),) = arguments(choice.message.tool_calls)
        assert name == "turn"


def test_the_chunks_of_a_call_have_its_id_and_name_once(served: Any) -> None:
    with served.client as client:
        chunks = list(
            client.chat.completions.create(**asked(tool_choice="required", max_tokens=200), stream=True)
        )
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert (deltas[0].role, deltas[0].content) == ("assistant", "")
    parts = [call for delta in deltas for call in delta.tool_calls or []]
    for index in {part.index for part in parts}:
        first, *rest = (part for part in parts if part.index == index)
        assert first.id
        assert (first.type, first.function.name in ("turn", "stop_here")) == ("function", True)
        assert not any(part.id or part.type or part.function.name for part in rest)


@pytest.mark.parametrize("cut", [50, 62])
def test_a_call_that_is_cut_keeps_length_in_a_stream_and_in_the_whole(served: Any, cut: int) -> None:
    with served.client as client:
        whole = client.chat.completions.create(**asked(tool_choice=NAMED, max_tokens=cut)).choices[0]
        chunks = list(client.chat.completions.create(**asked(tool_choice=NAMED, max_tokens=cut), stream=True))
    (call,) = whole.message.tool_calls
    with pytest.raises(ValueError):
        json.loads(call.function.arguments)
    parts = [part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or []]
    assert "".join(part.function.arguments for part in parts) == call.function.arguments
    assert chunks[-1].choices[0].finish_reason == whole.finish_reason == "length"


def test_logprobs_beside_calls_are_those_of_all_tokens(served: Any) -> None:
    options = asked(tool_choice=NAMED, logprobs=True)
    with served.client as client:
        whole = client.chat.completions.create(**options).choices[0]
        chunks = list(client.chat.completions.create(**options, stream=True))
    tokens = [token.bytes for token in whole.logprobs.content]
    text = b"".join(map(bytes, tokens)).decode()
    (call,) = whole.message.tool_calls
    assert text == f'<tool_call>\n{{"name": "turn", "arguments": {call.function.arguments}}}\n</tool_call>'
    shown = [chunk.choices[0].logprobs for chunk in chunks]
    assert [token.bytes for each in shown if each for token in each.content] == tokens


def test_a_record_holds_the_talk_as_the_template_saw_it_and_the_tools(served: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "turn", "arguments": '{"way": "left"}'}}
    talk = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    with served.client as client:
        answer = client.chat.completions.with_raw_response.create(
            **asked(messages=talk, tool_choice="required")
        )
    request_id = answer.headers["x-noria-request-id"]
    found = dict(served.until(lambda: db.requests.get(served.database, request_id)))
    seen = {"id": "c1", "type": "function", "function": {"name": "turn", "arguments": {"way": "left"}}}
    assert found["messages"] == [
        talk[0],
        {"role": "assistant", "content": "", "tool_calls": [seen]},
        talk[2] | {"tool_call_id": "c1"},
    ]
    assert [tool["function"]["name"] for tool in found["sampling"]["tools"]] == ["turn", "stop_here"]
    assert found["sampling"]["tool_choice"] == "required"
    assert found["completion"].startswith("<tool_call>\n")


def test_a_schema_that_cannot_be_enforced_is_refused_where_a_call_is_forced(served: Any) -> None:
    odd = {"type": "object", "properties": {"a": {"type": "string", "format": "no such format"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": odd}}]
    with served.client as client:
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(**asked(tools=tools, tool_choice="required"))
        assert client.chat.completions.create(**asked(tools=tools, max_tokens=4)).choices
    assert refused.value.param == "tools"


def test_the_prompt_ends_within_the_last_message(served: Any) -> None:
    talk = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "I go to the"}]
    with served.http as http:
        body = {"model": "assistant", "messages": talk, "continue_final_message": True}
        tokens = http.post("/tokenize", json=body).json()["tokens"]
        chat = http.post("/v1/chat/completions", json=body | {"max_tokens": 4})
    assert served.tokenizer.decode(tokens).endswith("I go to the")
    assert chat.json()["usage"]["prompt_tokens"] == len(tokens)
