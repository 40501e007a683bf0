"""What the openai client sees: answers, streams, usage, logprobs, errors."""

from typing import Any

import openai
import pytest

PROMPT = "tell me"


def fixed(**options: Any) -> dict[str, Any]:
    return {"model": "base", "prompt": PROMPT, "max_tokens": 24, "seed": 1, **options}


def first_seed(served: Any, prompt: str, tokens: int, least: int) -> int:
    """A seed whose completion has at least so many characters and is cut by the length limit."""
    return next(
        seed
        for seed in range(200)
        if len(served.expected(prompt, tokens, seed=seed)) >= least
        and served.expected(prompt, tokens, seed=seed)
        == served.expected(prompt, tokens + 1, seed=seed)[:tokens]
    )


def test_a_completion_is_what_the_engine_made(served: Any) -> None:
    with served.client as client:
        answer = client.completions.create(**fixed())
    assert answer.choices[0].text == served.expected(PROMPT, 24, seed=1)
    assert answer.object == "text_completion"
    assert answer.model == "base"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(PROMPT)


def test_a_stream_joined_is_the_whole(served: Any) -> None:
    with served.client as client:
        whole = client.completions.create(**fixed())
        chunks = list(
            client.completions.create(**fixed(), stream=True, stream_options={"include_usage": True})
        )
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == whole.choices[0].text
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].choices == []
    assert whole.usage is not None
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def test_a_chat_stream_begins_with_the_role_and_joins_to_the_whole(served: Any) -> None:
    asked: dict[str, Any] = {
        "model": "base",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 12,
        "seed": 3,
    }
    with served.client as client:
        whole = client.chat.completions.create(**asked)
        chunks = list(client.chat.completions.create(**asked, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content == ""
    joined = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert joined == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert whole.choices[0].message.role == "assistant"
    assert all(chunk.usage is None for chunk in chunks)
    assert {chunk.system_fingerprint for chunk in chunks} == {"abababababab-base"}


def test_choices_are_made_in_parallel_with_seeds_of_their_own(served: Any) -> None:
    with served.client as client:
        answer = client.completions.create(**fixed(n=3))
    texts = [served.expected(PROMPT, 24, seed=1 + number) for number in range(3)]
    assert [choice.text for choice in answer.choices] == texts
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(PROMPT)


def test_streams_of_several_choices_keep_apart(served: Any) -> None:
    with served.client as client:
        chunks = list(client.completions.create(**fixed(n=3), stream=True))
    for number in range(3):
        mine = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == number]
        assert "".join(choice.text for choice in mine) == served.expected(PROMPT, 24, seed=1 + number)
        assert mine[-1].finish_reason is not None


def test_several_prompts_and_token_ids(served: Any) -> None:
    ids = served.tokenizer.encode("two")
    with served.client as client:
        texts = client.completions.create(**fixed(prompt=["one", "two"]))
        by_ids = client.completions.create(**fixed(prompt=[ids, ids], n=2))
    assert [choice.text for choice in texts.choices] == [
        served.expected(prompt, 24, seed=1) for prompt in ("one", "two")
    ]
    assert [choice.index for choice in by_ids.choices] == [0, 1, 2, 3]
    assert by_ids.choices[0].text == by_ids.choices[2].text == served.expected("two", 24, seed=1)
    assert by_ids.usage is not None
    assert by_ids.usage.prompt_tokens == 2 * len(ids)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_text_before_it(served: Any, stream: bool) -> None:
    seed = first_seed(served, PROMPT, 24, 12)
    text = served.expected(PROMPT, 24, seed=seed)
    stop = text[6:9]
    with served.client as client:
        made = client.completions.create(**fixed(seed=seed, stop=stop), stream=stream)
        choices = [chunk.choices[0] for chunk in made] if stream else [made.choices[0]]
    assert "".join(choice.text for choice in choices) == text[: text.find(stop)]
    assert choices[-1].finish_reason == "stop"
    assert choices[-1].model_extra == {"stop_reason": stop} or choices[-1].stop_reason == stop
    served.until(served.idle)


def test_usage_after_a_stop_string_counts_to_the_stop(served: Any) -> None:
    seed = first_seed(served, PROMPT, 24, 12)
    stop = served.expected(PROMPT, 24, seed=seed)[6:9]
    text = served.expected(PROMPT, 24, seed=seed)
    with served.client as client:
        answer = client.completions.create(**fixed(seed=seed, stop=[stop, "never there"]))
    assert answer.usage is not None
    assert answer.usage.completion_tokens == text.find(stop) + len(stop)


def test_logprobs_of_chat_and_text(served: Any) -> None:
    with served.client as client:
        chat = client.chat.completions.create(
            model="base", messages=[{"role": "user", "content": "x"}], max_tokens=5, seed=4, logprobs=True
        )
        text = client.completions.create(**fixed(logprobs=0))
    content = chat.choices[0].logprobs.content
    assert "".join(item.token for item in content) == chat.choices[0].message.content
    ids = [
        ord(item.token) - 0x20 + 1 for item in content
    ]  # the vocabulary begins with the readable characters
    assert [item.logprob for item in content] == [-float(token_id) for token_id in ids]
    assert "".join(text.choices[0].logprobs.tokens) == text.choices[0].text


def test_a_repeated_prompt_is_found_in_the_cache_within_its_salt(served: Any) -> None:
    def cached(salt: str) -> int:
        with served.client as client:
            answer = client.completions.create(**fixed(prompt="z" * 100), extra_body={"cache_salt": salt})
        return int(answer.usage.prompt_tokens_details.cached_tokens)

    assert cached("one") == 0
    assert cached("two") == 0
    served.until(lambda: cached("one") > 0)


def test_models_are_listed_one_and_all(served: Any) -> None:
    with served.client as client:
        names = {model.id for model in client.models.list()}
        assert {"base", "assistant"} <= names
        card = client.models.retrieve("base")
        assert card.id == "base"
        assert card.model_extra["form"] == {"weights": "bfloat16", "kv_cache": "bfloat16"}
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.retrieve("Base")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("name", ["nobody", "Base", "base ", "base:assistant", ""])
def test_an_unknown_model_is_refused_and_never_the_base(served: Any, name: str) -> None:
    with served.client as client, pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(**fixed(model=name))
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_a_prompt_beyond_the_context_names_both_numbers(served: Any) -> None:
    with served.client as client, pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**fixed(prompt="y" * 600))
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")
    assert "512" in caught.value.message
    assert "600" in caught.value.message


def test_max_tokens_is_clamped_to_the_room(served: Any) -> None:
    with served.client as client:
        answer = client.completions.create(
            **fixed(prompt="y" * 500, max_tokens=10_000), extra_body={"ignore_eos": True}
        )
    assert answer.usage is not None
    assert answer.usage.total_tokens == 512
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"n": 0}, "n"),
        ({"suffix": "x"}, "suffix"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"prompt": [400]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_bad_input_is_refused_by_name_and_never_reaches_the_engine(
    served: Any, extra: dict[str, Any], param: str
) -> None:
    before = [replica.engine.stats().prompt_tokens for replica in served.replicas]
    with served.client as client, pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**fixed(), extra_body=extra)
    assert caught.value.param == param
    assert [replica.engine.stats().prompt_tokens for replica in served.replicas] == before


def test_headers_say_who_answers(served: Any) -> None:
    with served.client as client:
        raw = client.completions.with_raw_response.create(
            **fixed(n=2), extra_headers={"x-request-id": "mine"}
        )
        answer = raw.parse()
    assert raw.headers["x-noria-adapter"] == "base"
    assert raw.headers["x-noria-variant"] == "base"
    assert raw.headers["x-request-id"] == "mine"
    assert answer.id == f"cmpl-{raw.headers['x-noria-request-id']}"
    first, second = raw.headers["x-noria-choice-ids"].split(",")
    assert first == raw.headers["x-noria-request-id"] != second
