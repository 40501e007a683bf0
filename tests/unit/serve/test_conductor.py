"""What is fixed for a request before it starts, and what a client learns when it cannot be."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.errors import NoChatTemplate
from serve.caller import read_caller
from serve.conductor import Conductor
from serve.errors import answer_for
from serve.protocol.chat import parse_chat


class Plain:
    """A tokenizer of a model without a chat template."""

    def encode_chat(self, messages: Any, **options: Any) -> list[int]:
        raise NoChatTemplate("/srv/models/secret-place carries no chat template")


async def test_a_model_without_a_chat_template_is_named_and_its_folder_is_not() -> None:
    route = SimpleNamespace(model=SimpleNamespace(name="tiny", tokenizer=Plain()), chat_template=None)
    router = SimpleNamespace(route=lambda name, key: route)
    conductor = Conductor(cast(Any, router), cast(Any, None), cast(Any, None), cast(Any, None))
    body = parse_chat({"model": "support", "messages": [{"role": "user", "content": "hello"}]})
    with pytest.raises(NoChatTemplate) as raised:
        await conductor.chat(body, read_caller({}, "default"))
    answer = answer_for(raised.value)
    assert (answer.status, answer.body["error"]["code"]) == (400, "no_chat_template")
    assert "'tiny'" in answer.body["error"]["message"]
    assert "/srv" not in answer.body["error"]["message"]
