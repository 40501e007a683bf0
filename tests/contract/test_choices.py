"""Several choices of one prompt, from the HTTP edge to the engine and back."""

import json
from secrets import token_hex
from typing import Any

import pytest

import db.requests

PROMPT = "tell me"


def fixed(**options: Any) -> dict[str, Any]:
    return {"model": "base", "prompt": PROMPT, "max_tokens": 24, "seed": 1, **options}


def cut(text: str, stop: str) -> str:
    return text[: text.index(stop)] if stop in text else text


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_of_one_choice_leaves_the_others(served: Any, stream: bool) -> None:
    texts = [served.expected(PROMPT, 24, seed=1 + index) for index in range(4)]
    stop = next(
        text[at : at + 2]
        for text in texts
        for at in range(2, len(text) - 3)
        if sum(text[at : at + 2] in other for other in texts) == 1
    )
    with served.client as client:
        made = client.completions.with_raw_response.create(**fixed(n=4, stop=stop), stream=stream)
        ids = made.headers["x-noria-choice-ids"].split(",")
        choices = [c for chunk in made.parse() for c in chunk.choices] if stream else made.parse().choices
    for index, text in enumerate(texts):
        mine = [choice for choice in choices if choice.index == index]
        assert "".join(choice.text for choice in mine) == cut(text, stop)
        assert (mine[-1].stop_reason == stop) == (stop in text)
        row = served.until(lambda index=index: db.requests.get(served.database, ids[index]))
        assert (row["completion"], row["finish_reason"]) == (cut(text, stop), mine[-1].finish_reason)
    served.until(served.idle)


def test_the_prompt_of_several_choices_is_computed_once(served: Any) -> None:
    def prompt_tokens() -> int:
        return sum(int(replica.engine.stats().prompt_tokens) for replica in served.replicas)

    served.until(served.idle)
    before = prompt_tokens()
    with served.client as client:
        client.completions.create(**fixed(prompt="once only", n=8))
    served.until(lambda: served.idle() and prompt_tokens() == before + len("once only"))


def test_a_client_that_leaves_ends_all_choices(served: Any) -> None:
    with served.client as client:
        stream = client.completions.create(**fixed(n=5, max_tokens=400), stream=True)
        next(iter(stream))
        stream.close()
    served.until(served.idle)


@pytest.mark.parametrize("include_usage", [False, True])
@pytest.mark.parametrize("api", ["chat", "text"])
def test_the_events_of_a_stream_come_in_openais_order(served: Any, api: str, include_usage: bool) -> None:
    asked = fixed(n=3, stop=["e", "t"])
    if api == "chat":
        del asked["prompt"]
        asked["messages"] = [{"role": "user", "content": "hi"}]
    path = {"chat": "/v1/chat/completions", "text": "/v1/completions"}[api]
    with served.http as http:
        whole = http.post(path, json=asked | {"cache_salt": token_hex(8)}).json()
        options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": include_usage}}
        options["cache_salt"] = token_hex(8)
        lines = http.post(path, json=asked | options).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    if include_usage:
        last = chunks.pop()
        assert (last["choices"], last["usage"]) == ([], whole["usage"])
    assert {chunk.get("usage", "absent") for chunk in chunks} == {None if include_usage else "absent"}
    assert all(len(chunk["choices"]) == 1 for chunk in chunks)
    if api == "chat":
        roles = [chunk["choices"][0] for chunk in chunks[:3]]
        assert [choice["index"] for choice in roles] == [0, 1, 2]
        assert {json.dumps(choice["delta"]) for choice in roles} == {'{"role": "assistant", "content": ""}'}
        assert not any("role" in chunk["choices"][0]["delta"] for chunk in chunks[3:])
    for index in range(3):
        mine = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert [choice["finish_reason"] is None for choice in mine] == [True] * (len(mine) - 1) + [False]
        ends = [(one["finish_reason"], one["stop_reason"]) for one in (mine[-1], whole["choices"][index])]
        assert ends[0] == ends[1]
        texts = [choice["delta"].get("content", "") if api == "chat" else choice["text"] for choice in mine]
        made = whole["choices"][index]
        assert "".join(texts) == (made["message"]["content"] if api == "chat" else made["text"])
