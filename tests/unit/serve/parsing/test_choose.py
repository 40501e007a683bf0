"""Which form a model writes, by its template and its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import EngineConfig
from serve.config import ModelConfig, ReasoningParser, ToolParser
from serve.parsing.choose import Form, Style, style_of
from serve.parsing.parts import Call, OutputParser, Reply

TOOLS = "{% if tools %}{{ tools | tojson }}{% endif %}"
QWEN = TOOLS + "<tool_call>\n{...}\n</tool_call>"
CODER = TOOLS + "<tool_call>\n<function=name>\n<parameter=a>"
LLAMA = TOOLS + "<|python_tag|>"
LLAMA_32 = TOOLS + '{"name": function name, "parameters": dictionary of argument name and its value}'
MISTRAL = TOOLS + "[TOOL_CALLS]["
NEWER = TOOLS + "[TOOL_CALLS]{{ name }}[ARGS]"
R1 = "{{ message.content.split('</think>')[-1] }}"


def config(tools: ToolParser = "auto", thoughts: ReasoningParser = "auto") -> ModelConfig:
    engine = EngineConfig(model=Path("m"))
    return ModelConfig(
        name="m", folder=Path("m"), engine=engine, tool_parser=tools, reasoning_parser=thoughts
    )


@pytest.mark.parametrize(
    ("template", "form"),
    [
        (QWEN, "hermes"),
        (LLAMA, "llama3"),
        (LLAMA_32, "llama3"),
        (MISTRAL, "mistral"),
        (NEWER, "mistral-names"),
        (CODER, None),
        (TOOLS, None),
        ("{{ messages }}", "hermes"),
    ],
)
def test_the_template_shows_the_form_of_calls(template: str, form: Form | None) -> None:
    style = style_of(config(), template)
    assert (style.form, style.in_words) == (form, "tools" not in template)


def test_the_template_shows_whether_the_model_thinks() -> None:
    assert style_of(config(), QWEN + R1).thinks
    assert not style_of(config(), QWEN).thinks


def test_settings_come_first() -> None:
    assert style_of(config("llama3", "none"), QWEN + R1) == Style("llama3", False, False)
    assert style_of(config("mistral", "think"), NEWER) == Style("mistral-names", False, True)
    assert style_of(config("none"), QWEN).form is None
    assert style_of(config("hermes"), TOOLS).form == "hermes"


def test_tools_that_are_put_into_words_are_called_as_the_words_say() -> None:
    assert style_of(config("llama3"), "{{ messages }}") == Style("hermes", True, False)


CALLS = '<tool_call>{"name": "f", "arguments": {}}</tool_call>' * 2


def read(parser: OutputParser, text: str) -> Reply:
    reply = Reply()
    reply.add([*parser.push(text), *parser.finish()])
    return reply


def test_calls_are_looked_for_only_where_there_are_tools() -> None:
    style = Style("hermes", False, False)
    assert read(style.parser(tools=False, parallel=True, opened=False)(), CALLS) == Reply(CALLS)
    assert len(read(style.parser(tools=True, parallel=True, opened=False)(), CALLS).calls) == 2


def test_without_parallel_calls_the_first_one_stays() -> None:
    make = Style("hermes", False, True).parser(tools=True, parallel=False, opened=True)
    reply = read(make(), f"hm</think>{CALLS}bye")
    assert (reply.reasoning, reply.content) == ("hm", "bye")
    assert reply.calls == [Call(reply.calls[0].id, "f", "{}")]


def test_marks_of_all_parsers_are_told() -> None:
    make = Style("mistral", False, True).parser(tools=True, parallel=False, opened=False)
    assert make().markers == ("<think>", "</think>", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]")
