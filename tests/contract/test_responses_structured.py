"""Structured text over the Responses API, with the client's own helpers."""

from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel


class Colour(BaseModel):
    """What the text is to be."""

    name: Literal["red", "blue"]
    bright: bool


def asked(**options: Any) -> dict[str, Any]:
    given = {"model": "assistant", "input": "paint it", "max_output_tokens": 300, "extra_body": {"seed": 5}}
    return given | options


def test_text_is_parsed_as_the_model_it_was_asked_to_be(served: Any) -> None:
    with served.client as client:
        answer = client.responses.parse(**asked(text_format=Colour))
        with client.responses.stream(**asked(text_format=Colour)) as stream:
            for _ in stream:
                pass
            streamed = stream.get_final_response()
    assert isinstance(answer.output_parsed, Colour)
    assert streamed.output_parsed == answer.output_parsed


async def test_the_asynchronous_client_parses_too(served: Any) -> None:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0) as client:
        answer = await client.responses.parse(**asked(text_format=Colour))
    assert isinstance(answer.output_parsed, Colour)


@pytest.mark.parametrize(
    "schema", [{"type": "no"}, {"$ref": "https://example.org/x"}, {"type": "object", "properties": 5}]
)
def test_a_bad_schema_is_refused_by_the_name_it_has_here(served: Any, schema: dict[str, Any]) -> None:
    form = {"type": "json_schema", "name": "colour", "schema": schema}
    with served.client as client, pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**asked(text={"format": form}))
    assert caught.value.param == "text.format.schema"
