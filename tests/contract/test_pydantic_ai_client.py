"""pydantic-ai, unmodified: an agent over the OpenAI chat model."""

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


@pytest.fixture
def model(served: Any) -> OpenAIChatModel:
    return OpenAIChatModel("base", provider=OpenAIProvider(base_url=f"{served.url}/v1", api_key="any"))


async def test_an_agent_answers(model: OpenAIChatModel) -> None:
    agent = Agent(model, model_settings={"max_tokens": 12, "seed": 3})
    made = await agent.run("hi")
    assert made.output
    async with agent.run_stream("hi") as stream:
        assert await stream.get_output() == made.output
    assert made.usage.output_tokens == 12
