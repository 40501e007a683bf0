"""A prompt that ends within its last message: a mark is set there, rendered, and the text cut at it.

The way of transformers (continue_final_message), so that both make the same prompt. Knows no template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import BadTemplateInput

_MARK = "CONTINUE_FINAL_MESSAGE_TAG "
"""With a space at its end, which tells whether the template strips the text of messages."""


def open_last(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages, the last of them marked where its text ends."""
    *others, last = messages
    return [*others, {**last, "content": last["content"] + _MARK}]


def cut_open(text: str) -> str:
    """The rendered text up to the mark. Raises BadTemplateInput where the template left it out."""
    bare = _MARK.strip()
    at = text.rfind(bare)
    if at < 0:
        raise BadTemplateInput(
            "continue_final_message: the chat template does not show the text of the last message"
        )
    return text[:at] if text.startswith(_MARK, at) else text[:at].rstrip()
