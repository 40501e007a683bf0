"""Frameworks that speak the Responses API, unmodified."""

from typing import Any

import httpx
import openai
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

import db.requests


def messages_of(served: Any, response_id: str) -> list[dict[str, str]]:
    """What the record has as the conversation of an answer."""
    request_id = response_id.removeprefix("resp_")
    row = served.until(lambda: db.requests.get(served.database, request_id))
    return list(row["messages"])


def test_langchain_goes_on_from_the_answer_before(served: Any) -> None:
    with httpx.Client() as client:
        model = ChatOpenAI(
            model="assistant",
            base_url=f"{served.url}/v1",
            api_key="any",
            use_responses_api=True,
            use_previous_response_id=True,
            max_tokens=12,
            max_retries=0,
            http_client=client,
        )
        first = model.invoke("hi")
        second = model.invoke([("user", "hi"), first, ("user", "on")])
        chunks = list(model.stream("hi", extra_body={"seed": 3}))
        whole = model.invoke("hi", extra_body={"seed": 3})
    assert messages_of(served, second.response_metadata["id"]) == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "on"},
    ]
    assert "".join(chunk.text for chunk in chunks) == whole.text


async def test_pydantic_ai_hands_its_history_in_again(served: Any) -> None:
    asked: Any = {"max_tokens": 12, "extra_body": {"seed": 3}}
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0) as client:
        model = OpenAIResponsesModel("assistant", provider=OpenAIProvider(openai_client=client))
        agent = Agent(model, instructions="Be brief.")
        first = await agent.run("hi", model_settings=asked)
        second = await agent.run("on", message_history=first.all_messages(), model_settings=asked)
        async with agent.run_stream("hi", model_settings=asked) as stream:
            streamed = "".join([text async for text in stream.stream_text(delta=True)])
    assert streamed == first.output
    response: Any = second.all_messages()[-1]
    assert messages_of(served, response.provider_response_id) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": first.output},
        {"role": "user", "content": "on"},
    ]
