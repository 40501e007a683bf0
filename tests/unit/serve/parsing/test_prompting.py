from __future__ import annotations

import json

from serve.parsing.hermes import HermesParser
from serve.parsing.parts import Call
from serve.parsing.prompting import in_words
from tests.unit.serve.parsing.reading import reply_of

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": "é"}}}
USER = {"role": "user", "content": "hi"}


def test_tools_are_described_in_the_system_message() -> None:
    (system, user) = in_words([USER], [TOOL])
    assert (system["role"], user) == ("system", USER)
    assert f"<tools>\n{json.dumps(TOOL)}\n</tools>" in system["content"]
    assert '{"name": <function-name>, "arguments": <args-json-object>}' in system["content"]


def test_a_system_message_stays_in_front_of_them() -> None:
    (system, _) = in_words([{"role": "system", "content": "Be brief."}, USER], [TOOL])
    assert system["content"].startswith("Be brief.\n\n# Tools\n")


def test_calls_and_results_become_text() -> None:
    talk = [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]},
        {"role": "tool", "content": "one", "tool_call_id": "1"},
        {"role": "tool", "content": "two", "tool_call_id": "1"},
        {"role": "assistant", "content": "So", "tool_calls": [CALL]},
    ]
    user, calls, results, last = in_words(talk, [])
    assert (user, calls.keys(), results["role"]) == (USER, {"role", "content"}, "user")
    assert reply_of(HermesParser, calls["content"]).calls == [
        Call("call-0", "f", '{"a": "é"}'),
        Call("call-1", "f", '{"a": "é"}'),
    ]
    assert results["content"] == (
        "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"
    )
    assert last["content"].startswith("So\n<tool_call>\n")


def test_a_talk_without_tools_is_left_as_it_is() -> None:
    assert in_words([USER], []) == (USER,)
