"""The openai client against the whole platform: text, streams, usage, errors, the record."""

from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import db.requests

QUESTION: Any = [{"role": "user", "content": "What is the capital of France?"}]


def test_a_chat_answers(platform: Any) -> None:
    with platform.client as client:
        answer = client.chat.completions.create(
            model="assistant", messages=QUESTION, max_tokens=24, temperature=0
        )
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens < 24


def test_a_stream_joined_is_the_whole_and_has_its_usage(platform: Any) -> None:
    asked: Any = {
        "model": "smollm2-135m",
        "messages": [{"role": "user", "content": "Name three colours, and one smiley."}],
        "max_tokens": 24,
        "temperature": 0,
    }
    with platform.client as client:
        whole = client.chat.completions.create(**asked)
        chunks = list(
            client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        )
    joined = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert joined == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)


def test_errors_are_openais(platform: Any) -> None:
    with platform.client as client:
        with pytest.raises(openai.NotFoundError) as unknown:
            client.chat.completions.create(model="nobody", messages=QUESTION)
        with pytest.raises(openai.BadRequestError) as long:
            client.completions.create(model="smollm2-135m", prompt="word " * 2000)
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    assert long.value.code == "context_length_exceeded"
    assert "1024" in long.value.message


def test_a_long_prompt_is_found_again_within_its_salt(platform: Any) -> None:
    prompt = "The water wheel turns. " * 12

    def cached(salt: str) -> int:
        answer = platform.ask("smollm2-135m", prompt, 2, extra_body={"cache_salt": salt})
        return int(answer.usage.prompt_tokens_details.cached_tokens)

    assert [cached("a"), cached("b")] == [0, 0]
    assert cached("a") > 16


def test_the_record_holds_what_was_answered(platform: Any) -> None:
    with platform.client as client:
        raw = client.chat.completions.with_raw_response.create(
            model="assistant", messages=QUESTION, max_tokens=8, temperature=0, user="ann"
        )
    request_id = raw.headers["x-noria-request-id"]
    row = platform.until(lambda: db.requests.get(platform.database, request_id), 30)
    assert row["completion"] == raw.parse().choices[0].message.content
    assert (row["endpoint"], row["user_key"], row["variant"]) == ("assistant", "ann", "base")


def test_a_damaged_adapter_is_refused_and_the_platform_goes_on(platform: Any) -> None:
    folder: Path = platform.data / "adapters" / platform.adapter(90)
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])
    answer = platform.admin("load", lora_name="damaged", lora_path="seed-90")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "damaged_weights"
    assert "damaged" not in platform.adapters()
    assert platform.text("smollm2-135m", "One two three", 4)


def test_metrics_speak_of_adapters(platform: Any) -> None:
    platform.load("measured", 1)
    platform.text("measured", "hello", 4)
    text = httpx.get(f"{platform.url}/metrics", timeout=30).text
    assert 'vllm:time_to_first_token_seconds_count{adapter="measured",model_name="smollm2-135m"} 1.0' in text
    assert "vllm:num_requests_running{" in text
