"""What the openai client may say of single tokens, and how it is told what cannot be."""

from typing import Any

import openai
import pytest

PROMPT = "tell me"


def fixed(**options: Any) -> dict[str, Any]:
    return {"model": "base", "prompt": PROMPT, "max_tokens": 24, "seed": 1, **options}


def ids(text: str) -> list[int]:
    """The vocabulary has a token a byte: id 1 is a space, and so on."""
    return [ord(letter) - 31 for letter in text]


def test_only_allowed_tokens_are_generated(served: Any) -> None:
    with served.client as client:
        answer = client.completions.create(**fixed(extra_body={"allowed_token_ids": ids("abc")}))
    assert set(answer.choices[0].text) <= set("abc")
    assert answer.choices[0].finish_reason == "length"


def test_a_bad_word_is_not_generated(served: Any) -> None:
    with served.client as client:
        plain = client.completions.create(**fixed()).choices[0].text
        word = plain[1:3]
        asked = fixed(extra_body={"bad_words": [word]})
        text = client.completions.create(**asked).choices[0].text
        streamed = client.completions.create(**asked, stream=True)
        assert "".join(chunk.choices[0].text for chunk in streamed) == text
    assert word in plain
    assert word not in text
    assert text[:2] == plain[:2]


def test_a_biased_token_is_left_out(served: Any) -> None:
    chat: dict[str, Any] = {"model": "base", "messages": [{"role": "user", "content": "hi"}], "seed": 2}
    with served.client as client:
        plain = client.chat.completions.create(**chat, max_tokens=9).choices[0].message.content
        assert plain
        bias = {str(ids(plain[0])[0]): -100}
        text = (
            client.chat.completions.create(**chat, max_tokens=9, logit_bias=bias).choices[0].message.content
        )
    assert text
    assert text[0] != plain[0]


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1"),
        ({"allowed_token_ids": [99999]}, "allowed_token_ids"),
        ({"allowed_token_ids": [5, 5]}, "allowed_token_ids"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"bad_words": ["x" * 300]}, "bad_words[0]"),
    ],
)
def test_what_cannot_be_is_refused_by_name(served: Any, asked: dict[str, Any], param: str) -> None:
    with served.client as client, pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**fixed(extra_body=asked))
    assert caught.value.param == param
