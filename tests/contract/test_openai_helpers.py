"""The openai client's helpers, and answers held to its own types and to the OpenAPI document."""

import json
from typing import Any

import jsonschema
import openai
import pytest
from openai.types import Completion, CompletionUsage, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk

MESSAGES: Any = [{"role": "user", "content": "hi"}]
ASKED: dict[str, Any] = {"model": "base", "messages": MESSAGES, "max_tokens": 12, "seed": 3}


@pytest.fixture(scope="module")
def document(served: Any) -> Any:
    with served.http as http:
        return http.get("/openapi.json").json()


def check(document: Any, name: str, answer: Any) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(answer)


def data_of(event: str) -> Any:
    return json.loads(event.removeprefix("data: "))


def test_the_stream_helper_gathers_the_whole(served: Any) -> None:
    with served.client as client:
        uncut = client.chat.completions.create(**ASKED).choices[0].message.content
        asked = ASKED | {"stop": uncut[5:7]}
        whole = client.chat.completions.create(**asked)
        with client.chat.completions.stream(**asked) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason
    assert {"chunk", "content.delta", "content.done"} <= kinds


async def test_async_client(served: Any) -> None:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0) as client:
        whole = await client.chat.completions.create(**ASKED)
        stream = await client.chat.completions.create(**ASKED, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == whole.choices[0].message.content


@pytest.mark.parametrize("more", [{}, {"logprobs": True, "top_logprobs": 2}, {"n": 2}])
def test_chat_answers_have_all_that_clients_and_the_document_expect(
    served: Any, document: Any, more: dict[str, Any]
) -> None:
    with served.http as http:
        answer = http.post("/v1/chat/completions", json=ASKED | more).json()
        streamed = http.post(
            "/v1/chat/completions",
            json=ASKED | more | {"stream": True, "stream_options": {"include_usage": True}},
        ).text
    check(document, "ChatCompletion", answer)
    ChatCompletion.model_validate(answer, strict=True)
    CompletionUsage.model_validate(answer["usage"], strict=True)
    *events, done = streamed.strip().split("\n\n")
    assert done == "data: [DONE]"
    for event in events:
        chunk = data_of(event)
        check(document, "ChatCompletionChunk", chunk)
        ChatCompletionChunk.model_validate(chunk, strict=True)


@pytest.mark.parametrize("more", [{}, {"logprobs": 2}, {"prompt": ["a", "b"], "n": 2}, {"echo": True}])
def test_text_answers_have_all_that_clients_and_the_document_expect(
    served: Any, document: Any, more: dict[str, Any]
) -> None:
    asked = {"model": "base", "prompt": "tell me", "max_tokens": 5, "seed": 1, **more}
    with served.http as http:
        answer = http.post("/v1/completions", json=asked).json()
        *events, _ = http.post("/v1/completions", json=asked | {"stream": True}).text.strip().split("\n\n")
    check(document, "Completion", answer)
    Completion.model_validate(answer, strict=True)
    for event in events:
        check(document, "CompletionChunk", data_of(event))


def test_cards_errors_and_listings_are_as_documented(served: Any, document: Any) -> None:
    with served.http as http:
        models = http.get("/v1/models").json()
        health = http.get("/health").json()
        error = http.post("/v1/chat/completions", json=ASKED | {"model": "Base"})
    check(document, "ModelList", models)
    check(document, "Health", health)
    check(document, "Error", error.json())
    assert (error.status_code, error.json()["error"]["param"]) == (404, "model")
    for card in models["data"]:
        Model.model_validate(card, strict=True)


def test_a_model_just_unloaded_is_unknown(served: Any) -> None:
    assert served.load("gone", served.make_adapter("gone", 81)).status_code == 200
    with served.client as client:
        client.chat.completions.create(**ASKED | {"model": "gone"})
        served.unload("gone")
        with pytest.raises(openai.NotFoundError) as caught:
            client.chat.completions.create(**ASKED | {"model": "gone"})
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
