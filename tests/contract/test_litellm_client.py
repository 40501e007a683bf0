"""litellm, unmodified, by its custom OpenAI provider."""

import gc
from collections.abc import Iterator
from typing import Any

import litellm
import pytest

pytestmark = [
    pytest.mark.filterwarnings("ignore:Items? .* on TypedDict class .*ReadOnly:UserWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"),
]

ASKED: dict[str, Any] = {
    "model": "openai/base",
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 12,
    "seed": 3,
}


@pytest.fixture(autouse=True)
def _what_litellm_leaves_open() -> Iterator[None]:
    """Its event loops and connections are collected here, and not in somebody else's test."""
    yield
    gc.collect()


@pytest.fixture
def asked(served: Any) -> dict[str, Any]:
    return {**ASKED, "api_base": f"{served.url}/v1", "api_key": "any", "num_retries": 0}


def test_completion_and_stream_agree(asked: dict[str, Any]) -> None:
    whole = litellm.completion(**asked)
    parts = list(litellm.completion(**asked, stream=True))
    assert "".join(part.choices[0].delta.content or "" for part in parts) == whole.choices[0].message.content
    assert whole.usage.completion_tokens == 12
    assert whole.choices[0].finish_reason == parts[-1].choices[0].finish_reason == "length"


async def test_async(asked: dict[str, Any]) -> None:
    whole = await litellm.acompletion(**asked)
    stream = await litellm.acompletion(**asked, stream=True)
    assert (
        "".join([part.choices[0].delta.content or "" async for part in stream])
        == whole.choices[0].message.content
    )


def test_an_unknown_model_is_its_not_found_error(asked: dict[str, Any]) -> None:
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**asked | {"model": "openai/nobody"})


def test_text_completion(served: Any, asked: dict[str, Any]) -> None:
    made = litellm.text_completion(
        model="text-completion-openai/base",
        prompt="tell me",
        max_tokens=8,
        seed=1,
        api_base=asked["api_base"],
        api_key="any",
    )
    assert made.choices[0].text == served.expected("tell me", 8, seed=1)
