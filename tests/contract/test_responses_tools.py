"""Function tools over the Responses API, with the client's own helpers."""

import json
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel


class Colour(BaseModel):
    """What the function takes."""

    name: Literal["red", "blue"]
    bright: bool


TOOL: dict[str, Any] = {
    "type": "function",
    "name": "paint",
    "description": "Paints a wall.",
    "parameters": Colour.model_json_schema(),
    "strict": True,
}


def asked(**options: Any) -> dict[str, Any]:
    given = {"model": "assistant", "input": "paint it", "max_output_tokens": 300, "extra_body": {"seed": 5}}
    return given | options


def calling(**options: Any) -> dict[str, Any]:
    return asked(tools=[TOOL], tool_choice="required", parallel_tool_calls=False, **options)


def test_a_forced_call_fits_its_schema_and_the_stream_is_the_whole(served: Any) -> None:
    with served.client as client:
        whole = client.responses.create(**calling())
        events = list(client.responses.create(**calling(stream=True)))
    assert whole.status == "completed"
    (call,) = whole.output
    assert (call.type, call.name, call.status) == ("function_call", "paint", "completed")
    Colour.model_validate_json(call.arguments)
    assert [event.type for event in events if not event.type.endswith("arguments.delta")] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    (streamed,) = events[-1].response.output
    assert "".join(deltas) == streamed.arguments == call.arguments
    assert whole.tools[0].name == "paint"
    assert whole.tool_choice == "required"


def test_a_call_and_its_output_go_on(served: Any) -> None:
    with served.client as client:
        first = client.responses.create(**calling())
        (call,) = first.output
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
        by_id = client.responses.create(
            **asked(input=[result], previous_response_id=first.id, tools=[TOOL], tool_choice="none")
        )
        items = [{"role": "user", "content": "paint it"}, call, result]
        by_items = client.responses.create(**asked(input=items, tools=[TOOL], tool_choice="none"))
    assert by_id.output_text == by_items.output_text


def test_the_clients_stream_reads_the_arguments_of_its_own_model(served: Any) -> None:
    tool = openai.pydantic_function_tool(Colour, name="paint")
    options = asked(tools=[tool], tool_choice={"type": "function", "name": "paint"})
    with served.client as client, client.responses.stream(**options) as stream:
        snapshots = [
            event.snapshot for event in stream if event.type == "response.function_call_arguments.delta"
        ]
        (call,) = stream.get_final_response().output
    assert isinstance(call.parsed_arguments, Colour)
    assert json.loads(snapshots[-1]) == json.loads(call.arguments)


def test_only_allowed_tools_are_called(served: Any) -> None:
    other = TOOL | {"name": "sing"}
    choice = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "sing"}],
    }
    with served.client as client:
        answer = client.responses.create(
            **asked(tools=[TOOL, other], tool_choice=choice, parallel_tool_calls=False)
        )
    assert [item.name for item in answer.output] == ["sing"]
    assert [tool.name for tool in answer.tools] == ["paint", "sing"]


def test_a_call_that_was_cut_is_incomplete(served: Any) -> None:
    with served.client as client:
        events = list(client.responses.create(**calling(stream=True) | {"max_output_tokens": 50}))
    final = events[-1].response
    assert (final.status, final.output[-1].type) == ("incomplete", "function_call")
    assert final.output[-1].status == "incomplete"
    assert "response.function_call_arguments.done" not in [event.type for event in events]


def test_what_goes_on_from_a_call_that_was_cut_is_refused_by_where_it_is(served: Any) -> None:
    with served.client as client:
        first = client.responses.create(**calling() | {"max_output_tokens": 50})
        with pytest.raises(openai.BadRequestError) as by_id:
            client.responses.create(**asked(previous_response_id=first.id))
        with pytest.raises(openai.BadRequestError) as by_items:
            client.responses.create(**asked(input=[{"role": "user", "content": "go on"}, *first.output]))
    assert by_id.value.param == "previous_response_id"
    assert by_items.value.param == f"input[{len(first.output)}].arguments"
    assert first.output[-1].call_id in by_id.value.message


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"tools": [TOOL | {"parameters": {"type": "array"}}]}, "tools[0].parameters"),
        ({"tools": [TOOL, TOOL]}, "tools"),
    ],
)
def test_a_bad_schema_is_refused_by_the_name_it_has_here(
    served: Any, extra: dict[str, Any], param: str
) -> None:
    with served.client as client, pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**asked() | {"extra_body": extra})
    assert caught.value.param is not None
    assert caught.value.param.startswith(param)
