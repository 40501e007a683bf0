"""Unmodified clients ask a small real model for typed answers and calls: what they return is valid."""

import gc
import json
from collections.abc import Iterator
from typing import Any

import litellm
import openai
import pytest
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.e2e.conftest import BASE

QUESTION = "The weather in Paris, please."


class Weather(BaseModel):
    """The weather of a city."""

    city: str = Field(max_length=20)
    degrees: int = Field(ge=-50, le=50)


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@pytest.fixture(scope="module")
def langchain(platform: Any) -> Iterator[ChatOpenAI]:
    """Once: two of its models share a connection, and closing one's closes the other's."""
    model = ChatOpenAI(
        model=BASE,
        base_url=f"{platform.url}/v1",
        api_key="any",
        max_retries=0,
        max_tokens=120,
        temperature=0,
        timeout=120,
    )
    yield model
    model.root_client.close()


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_answers_in_a_type(langchain: ChatOpenAI, method: Any) -> None:
    assert isinstance(langchain.with_structured_output(Weather, method=method).invoke(QUESTION), Weather)


@pytest.mark.parametrize("choice", ["weather", "required"])
def test_langchain_calls_a_tool(langchain: ChatOpenAI, choice: str) -> None:
    bound = langchain.bind_tools([weather], tool_choice=choice)
    call = bound.invoke(QUESTION).tool_calls[0]
    assert (call["name"], list(call["args"])) == ("weather", ["city"])
    chunks = list(bound.stream(QUESTION))
    streamed = sum(chunks[1:], chunks[0])
    assert streamed.tool_calls[0]["args"] == call["args"]


@pytest.mark.parametrize("output", [Weather, NativeOutput(Weather)], ids=["by a call", "native"])
async def test_a_pydantic_ai_agent_answers_in_a_type(platform: Any, output: Any) -> None:
    async with openai.AsyncOpenAI(base_url=f"{platform.url}/v1", api_key="any") as client:
        agent = Agent(
            OpenAIChatModel(BASE, provider=OpenAIProvider(openai_client=client)),
            output_type=output,
            model_settings={"max_tokens": 120, "temperature": 0},
        )
        assert isinstance((await agent.run(QUESTION)).output, Weather)


def test_openais_own_tools_are_parsed(platform: Any) -> None:
    with platform.client as client:
        made = client.chat.completions.parse(
            model=BASE,
            messages=[{"role": "user", "content": QUESTION}],
            tools=[openai.pydantic_function_tool(Weather)],
            tool_choice="required",
            parallel_tool_calls=False,
            max_tokens=120,
            temperature=0,
        )
    assert isinstance(made.choices[0].message.tool_calls[0].function.parsed_arguments, Weather)


@pytest.mark.filterwarnings("ignore:Items? .* on TypedDict class .*ReadOnly:UserWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
def test_litellm_answers_in_a_type_and_calls(platform: Any) -> None:
    asked: dict[str, Any] = {
        "model": f"openai/{BASE}",
        "api_base": f"{platform.url}/v1",
        "api_key": "any",
        "num_retries": 0,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 120,
        "temperature": 0,
    }
    typed = litellm.completion(**asked, response_format=Weather)
    assert Weather.model_validate_json(typed.choices[0].message.content)
    function = {"name": "weather", "parameters": Weather.model_json_schema()}
    called = litellm.completion(
        **asked, tools=[{"type": "function", "function": function}], tool_choice="required"
    )
    for call in called.choices[0].message.tool_calls:
        assert Weather.model_validate(json.loads(call.function.arguments))
    gc.collect()  # what litellm leaves open is noted here, and not in somebody else's test
