"""langchain-openai, unmodified: its chat model and its completion model."""

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_openai import ChatOpenAI, OpenAI


@pytest.fixture(scope="module")
def chat(served: Any) -> Iterator[ChatOpenAI]:
    model = ChatOpenAI(
        model="base", base_url=f"{served.url}/v1", api_key="any", max_retries=0, max_tokens=12, seed=3
    )
    yield model
    model.root_client.close()


def test_invoke_and_stream_agree(chat: ChatOpenAI) -> None:
    whole = chat.invoke("hi")
    parts = list(chat.stream("hi"))
    assert "".join(str(part.content) for part in parts) == whole.content
    assert whole.usage_metadata["output_tokens"] == 12
    assert whole.response_metadata["finish_reason"] == "length"


async def test_async(chat: ChatOpenAI) -> None:
    whole = await chat.ainvoke("hi")
    assert "".join([str(part.content) async for part in chat.astream("hi")]) == whole.content
    await chat.root_async_client.close()


def test_completions(served: Any) -> None:
    model = OpenAI(
        model="base",
        base_url=f"{served.url}/v1",
        api_key="any",
        max_retries=0,
        max_tokens=8,
        seed=1,
        temperature=1,
        n=1,
        top_p=1,
    )
    assert model.invoke("tell me") == served.expected("tell me", 8, seed=1)
    assert "".join(model.stream("tell me")) == served.expected("tell me", 8, seed=1)
