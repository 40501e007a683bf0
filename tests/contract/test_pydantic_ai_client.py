"""pydantic-ai, unmodified: an agent over the OpenAI chat model."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


@pytest.fixture
async def model(served: Any) -> AsyncIterator[OpenAIChatModel]:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any") as client:
        yield OpenAIChatModel("base", provider=OpenAIProvider(openai_client=client))


async def test_an_agent_answers(model: OpenAIChatModel) -> None:
    agent = Agent(model, model_settings={"max_tokens": 12, "seed": 3})
    made = await agent.run("hi")
    assert made.output
    async with agent.run_stream("hi") as stream:
        assert await stream.get_output() == made.output
    assert made.usage.output_tokens == 12
