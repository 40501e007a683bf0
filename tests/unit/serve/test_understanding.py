"""What is fixed of a chat by the template it is rendered in: its prompt, its parser, its grammar."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.config import EngineConfig
from engine.detokenizer import Detokenizer
from engine.tokenizer import Tokenizer
from serve.config import ModelConfig
from serve.errors import InvalidField
from serve.order import Prompt
from serve.parsing.parts import Call, Reply
from serve.parsing.plain import PlainParser
from serve.prompts import LONG, Prompts
from serve.talk import Calls, Talk
from serve.understanding import understand
from serve.visible import VisibleText
from tests.unit.engine.conftest import CHATML, byte_level_encoder, write_tokenizer

USER = {"role": "user", "content": "hi"}
TOOL: Any = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
}
DEMANDED = {"f": TOOL["function"]["parameters"]}
FREE = Calls()
MISTRAL = "{% if tools %}[TOOL_CALLS]{{ tools | tojson }}[ARGS]{% endif %}{{ messages[-1].content }}"
THINKING = CHATML.replace("assistant\n", "assistant\n<think>\n") + "{# </think> #}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def tokenizer(folder: Path, template: str) -> Tokenizer:
    encoder = byte_level_encoder()
    encoder.add_special_tokens(["[TOOL_CALLS]", "[ARGS]"])
    return write_tokenizer(folder, encoder, chat_template=template)


async def understood(
    folder: Path, template: str, talk: Talk, calls: Calls = FREE, **config: Any
) -> tuple[Prompt, Tokenizer]:
    made = tokenizer(folder, template)
    engine = EngineConfig(model=folder)
    model = SimpleNamespace(
        name="m", config=ModelConfig(name="m", folder=folder, engine=engine, **config), tokenizer=made
    )
    route = SimpleNamespace(model=model, chat_template=None)
    prompts = Prompts()
    try:
        return await understand(prompts, cast(Any, route), talk, calls, None), made
    finally:
        prompts.close()


async def test_marks_that_are_special_tokens_are_seen_by_the_parser_alone(folder: Path) -> None:
    prompt, made = await understood(folder, MISTRAL, Talk((USER,), (TOOL,)))
    ids = [
        *(cast(int, made.special_id("[TOOL_CALLS]")), *made.encode("f", add_special_tokens=False)),
        *(cast(int, made.special_id("[ARGS]")), *made.encode("{}", add_special_tokens=False)),
        cast(int, made.special_id("<|im_start|>")),
    ]
    text = Detokenizer(VisibleText(made, prompt.visible)).push(ids).text
    assert text == "[TOOL_CALLS]f[ARGS]{}"
    reply, parser = Reply(), prompt.parser()
    reply.add([*parser.push(text), *parser.finish()])
    assert reply.calls == [Call(reply.calls[0].id, "f", "{}")]
    without, _ = await understood(folder, MISTRAL, Talk((USER,)))
    assert (without.visible, without.parser) == (frozenset(), PlainParser)


async def test_a_demanded_call_has_a_grammar_of_the_models_own_tokens(folder: Path) -> None:
    calls = Calls(demanded=DEMANDED, offered=DEMANDED)
    prompt, made = await understood(folder, MISTRAL, Talk((USER,), (TOOL,)), calls)
    assert prompt.grammar is not None
    assert f"<[{made.special_id('[TOOL_CALLS]')}]>" in prompt.grammar.text
    free, _ = await understood(folder, MISTRAL, Talk((USER,), (TOOL,)), Calls(offered=DEMANDED))
    assert free.grammar is None


async def test_tools_are_put_into_words_where_the_template_knows_none(folder: Path) -> None:
    prompt, made = await understood(folder, CHATML, Talk((USER,), (TOOL,)))
    assert [message["role"] for message in prompt.shown] == ["system", "user"]
    assert '"name": "f"' in prompt.shown[0]["content"]
    assert prompt.ids == tuple(made.encode(made.render_chat(prompt.shown), add_special_tokens=False))
    plain, _ = await understood(folder, CHATML, Talk((USER,)))
    assert plain.shown == (USER,)


async def test_tools_of_an_unknown_form_are_refused(folder: Path) -> None:
    with pytest.raises(InvalidField, match="tool_parser") as refused:
        await understood(folder, "{{ tools }}{{ messages }}", Talk((USER,), (TOOL,)))
    assert refused.value.param == "tools"
    with pytest.raises(InvalidField):
        await understood(folder, CHATML, Talk((USER,), (TOOL,)), tool_parser="none")


@pytest.mark.parametrize(
    ("talk", "thought"),
    [
        (Talk((USER,)), "hm"),
        (Talk((USER,), add_generation_prompt=False), ""),
        (
            Talk(
                (USER, {"role": "assistant", "content": "<think>so"}),
                add_generation_prompt=False,
                continue_final_message=True,
            ),
            "hm",
        ),
        (
            Talk(
                (USER, {"role": "assistant", "content": "<think>so</think>Well"}),
                add_generation_prompt=False,
                continue_final_message=True,
            ),
            "",
        ),
    ],
)
async def test_a_prompt_may_end_within_a_thought(folder: Path, talk: Talk, thought: str) -> None:
    prompt, _ = await understood(folder, THINKING, talk)
    reply, parser = Reply(), prompt.parser()
    reply.add([*parser.push("hm</think>Yes."), *parser.finish()])
    assert reply.reasoning == thought
    assert reply.content == ("Yes." if thought else "hm</think>Yes.")


async def test_a_long_talk_is_written_on_a_thread_and_is_the_same(folder: Path) -> None:
    talk = Talk(({"role": "user", "content": "x" * LONG},))
    prompt, made = await understood(folder, CHATML, talk)
    assert made.decode(prompt.ids).count("x") == LONG
