"""Several choices of one prompt, from the HTTP edge to the engine and back."""

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
