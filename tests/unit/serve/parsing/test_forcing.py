"""What the grammars allow: calls in a model's own form, that its parser reads and that fit the schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from engine.grammar import Grammar
from engine.grammar_form import compiler_form
from serve.parsing.choose import Form, Style
from serve.parsing.forcing import MAX_CALLS, framed, grammar_of
from serve.parsing.parts import Reply

CITY = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/name"}, "days": {"type": "integer"}},
    "required": ["city"],
    "$defs": {"name": {"type": "string"}},
}
FUNCTIONS: dict[str, Any] = {"get": CITY, "get_time": {"type": "object", "properties": {}}}
FORMS: tuple[Form, ...] = ("hermes", "llama3", "mistral", "mistral-names")
BYTES = LLTokenizer("byte")
END = BYTES.eos_token


def write(form: Form, calls: list[tuple[str, Any]]) -> str:
    key = "parameters" if form == "llama3" else "arguments"
    written = [(name, json.dumps(args, ensure_ascii=False)) for name, args in calls]
    objects = [f'{{"name": "{name}", "{key}": {args}}}' for name, args in written]
    match form:
        case "hermes":
            return "\n".join(f"<tool_call>\n{each}\n</tool_call>" for each in objects)
        case "llama3":
            return "; ".join(objects)
        case "mistral":
            return f"[TOOL_CALLS][{', '.join(objects)}]"
        case "mistral-names":
            return "".join(f"[TOOL_CALLS]{name}[ARGS]{args}" for name, args in written)


def allows(text: str, form: Form, functions: dict[str, Any] = FUNCTIONS, **options: Any) -> bool:
    defaults: dict[str, Any] = {"several": True, "thinks": False, "opened": False, "special": lambda _: None}
    grammar = grammar_of(form, functions, **(defaults | options))
    assert grammar.kind == "lark"
    matcher = LLMatcher(BYTES, LLMatcher.grammar_from_lark(grammar.text), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    tokens = BYTES.tokenize_str(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


ONE = [("get", {"city": 'New "York"\n{é}', "days": 5})]
TWO = [*ONE, ("get_time", {})]


@pytest.mark.parametrize("form", FORMS)
def test_calls_of_the_form_are_allowed_and_read(form: Form) -> None:
    for calls in (ONE, TWO, [("get", {"city": ""})]):
        text = write(form, calls)
        assert allows(text, form)
        parser = Style(form, False, False).parser(tools=True, parallel=True, opened=False)()
        reply = Reply()
        reply.add([*parser.push(text), *parser.finish()])
        assert [(call.name, json.loads(call.arguments)) for call in reply.calls] == calls
        assert reply.content == ""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "calls",
    [
        [],
        [("other", {})],
        [("get", {})],
        [("get", {"city": 5})],
        [("get", {"city": "a", "town": "b"})],
        [("get_time", {"city": "a"})],
        [("get_time", {})] * (MAX_CALLS + 1),
    ],
)
def test_nothing_else_is_allowed(form: Form, calls: list[tuple[str, Any]]) -> None:
    assert not allows(write(form, calls), form)
    assert not allows("Paris.", form)


@pytest.mark.parametrize("form", FORMS)
def test_one_call_where_one_is_wanted(form: Form) -> None:
    assert allows(write(form, ONE), form, several=False)
    assert not allows(write(form, TWO), form, several=False)


@pytest.mark.parametrize("form", FORMS)
def test_a_thought_may_come_first(form: Form) -> None:
    calls = write(form, TWO)
    assert allows(calls, form, thinks=True)
    assert allows(f"<think>\nhm </thin\n</think>\n\n{calls}", form, thinks=True)
    assert allows(f"hm\n</think>{calls}", form, thinks=True, opened=True)
    assert not allows(calls, form, thinks=True, opened=True)
    assert not allows(f"hm {calls}", form, thinks=True)
    assert not allows("<think>hm</think>", form, thinks=True)


def test_a_schema_that_says_more_of_its_properties_keeps_its_word() -> None:
    open_one = {"get": CITY | {"additionalProperties": True}}
    assert allows(write("hermes", [("get", {"city": "a", "town": "b"})]), "hermes", open_one)
    unlisted = {"get": {"properties": {}, "required": ["city"]}}
    assert allows(write("hermes", [("get", {"city": 1})]), "hermes", unlisted)
    assert allows(write("hermes", [("get", {"a": [None]})]), "hermes", {"get": {}})


def test_marks_that_are_special_tokens_are_named_by_their_ids() -> None:
    ids = {"[TOOL_CALLS]": 5, "[ARGS]": 32, "</think>": 7}
    text = grammar_of(
        "mistral-names", FUNCTIONS, several=True, thinks=True, opened=False, special=ids.get
    ).text
    assert '"[TOOL_CALLS]"' not in text
    assert "call: <[5]> (f0 | f1)" in text
    assert 'f0: "get" <[32]> a0' in text
    assert r"thought: /(.|\n)*/ <[7]> SPACE?" in text
    assert not LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(text), None)


def framed_allows(answer: str, text: Grammar, functions: dict[str, Any], **options: Any) -> bool:
    defaults: dict[str, Any] = {"several": True, "thinks": False, "opened": False, "special": lambda _: None}
    grammar = framed(text, "hermes", functions, **(defaults | options))
    assert (grammar.kind, grammar.text, grammar.param) == (text.kind, text.text, text.param)
    matcher = LLMatcher(BYTES, compiler_form(grammar, after_space=False), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    tokens = BYTES.tokenize_str(answer)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


FORMS_OF_TEXT = [
    (Grammar("json_schema", '{"type": "object", "required": ["a"]}', "response_format"), '{"a": 1}'),
    (Grammar("regex", "yes|no"), "yes"),
    (Grammar("choice", '["yes", "no"]'), "no"),
    (Grammar("lark", 'start: "x" y\ny: "z"'), "xz"),
]


@pytest.mark.parametrize(("text", "sentence"), FORMS_OF_TEXT)
def test_a_text_in_a_form_may_have_calls_in_its_place_and_a_thought_before_it(
    text: Grammar, sentence: str
) -> None:
    call = write("hermes", ONE)
    assert (
        framed(text, "hermes", {}, several=True, thinks=False, opened=False, special=lambda _: None) is text
    )
    assert framed_allows(sentence, text, FUNCTIONS)
    assert framed_allows(call, text, FUNCTIONS)
    assert not framed_allows(sentence + call, text, FUNCTIONS)
    assert not framed_allows("well", text, FUNCTIONS)
    for opened, start in ((True, ""), (False, "<think>")):
        thought = f"{start}so it is {{}} then</think>\n\n"
        for functions in ({}, FUNCTIONS):
            may: dict[str, Any] = {"thinks": True, "opened": opened}
            assert framed_allows(thought + sentence, text, functions, **may)
            assert framed_allows(sentence, text, functions, **may) == (not opened)
            assert framed_allows(thought + call, text, functions, **may) == bool(functions)
            assert not framed_allows(thought + "well", text, functions, **may)
