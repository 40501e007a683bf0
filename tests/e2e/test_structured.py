"""The openai client's own helpers for typed answers, on a small real model that knows nothing of schemas."""

from enum import Enum
from typing import Any

import openai
import pytest
from pydantic import BaseModel, Field

QUESTION: Any = [{"role": "user", "content": "Tell me about a person: name, age, colour, friends."}]


class Colour(Enum):
    red = "red"
    blue = "blue"


class Friend(BaseModel):
    name: str = Field(max_length=20)


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)
    colour: Colour | None
    friends: list[Friend] = Field(max_length=2)


def asked(**more: Any) -> Any:
    return {
        "model": "smollm2-135m",
        "messages": QUESTION,
        "max_tokens": 200,
        "response_format": Person,
        **more,
    }


@pytest.mark.parametrize("temperature", [0.0, 1.0, 1.8])
def test_the_parse_helper_gets_an_object(platform: Any, temperature: float) -> None:
    with platform.client as client:
        answer = client.chat.completions.parse(**asked(temperature=temperature, seed=3))
    assert isinstance(answer.choices[0].message.parsed, Person)
    assert answer.choices[0].finish_reason == "stop"


def test_the_stream_helper_gets_the_same_object(platform: Any) -> None:
    with platform.client as client:
        whole = client.chat.completions.parse(**asked(temperature=0))
        with client.chat.completions.stream(**asked(temperature=0)) as stream:
            deltas = [event.delta for event in stream if event.type == "content.delta"]
            final = stream.get_final_completion()
    assert final.choices[0].message.parsed == whole.choices[0].message.parsed
    assert "".join(deltas) == whole.choices[0].message.content


def test_a_bad_schema_is_refused_and_the_next_one_is_not(platform: Any) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#/$defs/missing"}}}
    with platform.client as client:
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(**asked(response_format=form))
        answer = client.chat.completions.parse(**asked(temperature=0))
    assert refused.value.param == "response_format.json_schema.schema"
    assert refused.value.code == "invalid_grammar"
    assert answer.choices[0].message.parsed
