"""Tools for chat templates that know none: described in the system message, in Hermes' form.

Earlier calls and their results become text as well, so such a template meets the roles system, user and
assistant only.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from serve.parsing.hermes import CLOSE, OPEN

_INTRODUCTION = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> \
XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


def in_words(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> tuple[Mapping[str, Any], ...]:
    """The messages with everything about tools as text."""
    told = [each for is_tool, turns in groupby(messages, _is_result) for each in _told(is_tool, list(turns))]
    if not tools:
        return tuple(told)
    introduction = _INTRODUCTION.format(tools="\n".join(map(_json, tools)))
    if told and told[0]["role"] == "system":
        first = told.pop(0)
        introduction = f"{first['content']}\n\n{introduction}"
    return ({"role": "system", "content": introduction}, *told)


def _is_result(message: Mapping[str, Any]) -> bool:
    return bool(message["role"] == "tool")


def _told(results: bool, messages: Sequence[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """Results of calls made together are one turn: templates may want users and assistants to alternate."""
    if not results:
        return map(_with_calls, messages)
    texts = (f"<tool_response>\n{message['content']}\n</tool_response>" for message in messages)
    return [{"role": "user", "content": "\n".join(texts)}]


def _with_calls(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if "tool_calls" not in message:
        return message
    calls = (_json(call["function"]) for call in message["tool_calls"])
    texts = [message["content"], *(f"{OPEN}\n{call}\n{CLOSE}" for call in calls)]
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return rest | {"content": "\n".join(filter(None, texts))}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
