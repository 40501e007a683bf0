"""Answers in a form that the request asks for, and grammars that are refused while others are answered."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

import jsonschema
import pytest

from tests.contract.conftest import Served

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]{1,8}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
ASK: dict[str, Any] = {"model": "base", "messages": [{"role": "user", "content": "hi"}]}
GOOD = {"structured_outputs": {"regex": "[a-z]{40,60}"}}


def nested(depth: int) -> dict[str, Any]:
    return {"type": "array", "items": nested(depth - 1)} if depth else {"type": "string"}


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", "invalid_grammar"),
    ({"structured_outputs": {"regex": "a(?=b)"}}, "structured_outputs.regex", "invalid_grammar"),
    ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "invalid_grammar"),
    ({"structured_outputs": {"json": {"$ref": "#/a"}}}, "structured_outputs.json", "invalid_grammar"),
    ({"structured_outputs": {"json": {"enum": []}}}, "structured_outputs.json", "invalid_grammar"),
    ({"structured_outputs": {"json": nested(40)}}, "structured_outputs.json", "grammar_too_complex"),
    ({"structured_outputs": {"json": {"not": {}}}}, "structured_outputs.json", "invalid_grammar"),
    (
        {"structured_outputs": {"json": {"enum": ["x" * 600_000]}}},
        "structured_outputs.json",
        "grammar_too_complex",
    ),
    ({"structured_outputs": {"grammar": "nonsense"}}, "structured_outputs.grammar", "invalid_grammar"),
    ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object", "invalid_value"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "invalid_value"),
    ({"guided_regex": "a"}, "guided_regex", "unsupported_parameter"),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": "string", "nullable": True}},
            }
        },
        "response_format.json_schema.schema",
        "invalid_grammar",
    ),
]


def content(served: Served, body: dict[str, Any]) -> list[str]:
    with served.http as http:
        answer = http.post("/v1/chat/completions", json=ASK | body)
        assert answer.status_code == 200, answer.text
        assert {choice["finish_reason"] for choice in answer.json()["choices"]} == {"stop"}
        return [choice["message"]["content"] for choice in answer.json()["choices"]]


def streamed(served: Served, body: dict[str, Any]) -> str:
    stream = served.client.chat.completions.create(**ASK, stream=True, extra_body=body)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_answers_satisfy_the_schema_in_stream_and_whole(served: Served, seed: int) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    body = {"response_format": form, "seed": seed}
    (text,) = content(served, body)
    jsonschema.validate(json.loads(text), PERSON)
    assert streamed(served, body) == text
    jsonschema.validate(json.loads(content(served, {"structured_outputs": {"json": PERSON}})[0]), PERSON)


def test_regexes_choices_and_grammars_hold_for_every_choice(served: Served) -> None:
    for text in content(served, {"structured_outputs": {"regex": r"\d{3}-[xy]{2,4}"}, "n": 4, "seed": 3}):
        assert re.fullmatch(r"\d{3}-[xy]{2,4}", text)
    choices = content(served, {"structured_outputs": {"choice": ["yes", "no"]}, "n": 8, "seed": 1})
    assert set(choices) <= {"yes", "no"}
    for grammar in ('start: "a" b{2}\nb: "x" | "y"', 'root ::= "a" item item\nitem ::= "x" | "y"'):
        assert re.fullmatch("a[xy]{2}", content(served, {"structured_outputs": {"grammar": grammar}})[0])


def test_plain_completions_take_a_form_too(served: Served) -> None:
    with served.http as http:
        body = {"model": "base", "prompt": ["x", "y"], "max_tokens": 60, "ignore_eos": True}
        answer = http.post("/v1/completions", json=body | {"structured_outputs": {"regex": "a{2}b"}})
    assert [choice["text"] for choice in answer.json()["choices"]] == ["aab", "aab"]


def test_an_answer_that_is_cut_says_so(served: Served) -> None:
    with served.http as http:
        answer = http.post("/v1/chat/completions", json=ASK | GOOD | {"max_tokens": 7}).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert re.fullmatch("[a-z]{7,}", answer["choices"][0]["message"]["content"])


def test_bad_grammars_are_refused_by_name_while_good_streams_run(served: Served) -> None:
    plain = {"seed": 5, "max_tokens": 200, "ignore_eos": True}
    alone = [streamed(served, GOOD | {"seed": seed}) for seed in range(3)], streamed(served, plain)
    done, texts = threading.Event(), list[Any]()

    def stream_on() -> None:
        while not done.is_set():
            texts.append(
                ([streamed(served, GOOD | {"seed": seed}) for seed in range(3)], streamed(served, plain))
            )

    threads = [threading.Thread(target=stream_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    with served.http as http:
        for change, param, code in BAD:
            answer = http.post("/v1/chat/completions", json=ASK | change)
            assert answer.status_code == 400, answer.text
            error = answer.json()["error"]
            assert (error["param"], error["code"]) == (param, code)
            assert error["message"].startswith(param)
            assert len(error["message"]) < 1000
    done.set()
    for thread in threads:
        thread.join()
    assert texts
    assert all(text == alone for text in texts)
    served.until(served.idle)


@pytest.mark.parametrize(
    "regex", ["(a+)+b", "((a{1,100}){1,100}){1,100}", "(.*a){20}", "|".join(f"word{n}" for n in range(5000))]
)
def test_grammars_that_look_dangerous_are_answered(served: Served, regex: str) -> None:
    with served.http as http:
        body = ASK | {"structured_outputs": {"regex": regex}, "max_tokens": 20}
        assert http.post("/v1/chat/completions", json=body).status_code == 200
