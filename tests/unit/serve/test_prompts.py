"""Texts and conversations to token ids, and what a client learns where that cannot be."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.errors import NoChatTemplate
from serve.error_table import answer_for
from serve.prompts import LONG, Prompts, of_text
from serve.talk import Talk


class Plain:
    """A tokenizer of a model without a chat template: one id a character."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [1] * add_special_tokens + [ord(character) for character in text]

    def template_for(self, tools: bool) -> None:
        return None


async def test_a_model_without_a_chat_template_is_named() -> None:
    route = SimpleNamespace(model=SimpleNamespace(name="tiny", tokenizer=Plain()), chat_template=None)
    talk = Talk(({"role": "user", "content": "hello"},))
    with pytest.raises(NoChatTemplate) as raised:
        await Prompts().of_chat(cast(Any, route), talk)
    answer = answer_for(raised.value)
    assert (answer.status, answer.body["error"]["code"]) == (400, "no_chat_template")
    assert "'tiny'" in answer.body["error"]["message"]


@pytest.mark.parametrize("text", ["", "ab", "a" * (LONG + 1)], ids=["empty", "short", "long"])
async def test_a_text_of_any_length_with_marks_and_without(text: str) -> None:
    bare = tuple(map(ord, text))
    assert await of_text(cast(Any, Plain()), text) == (1, *bare)
    assert await of_text(cast(Any, Plain()), text, add_special_tokens=False) == bare
