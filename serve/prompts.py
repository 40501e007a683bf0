"""Texts and conversations to token ids, by the tokenizer and the chat template of whoever answers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.errors import NoChatTemplate
from engine.tokenizer import Tokenizer
from serve.routing import Route
from serve.templates import AdapterTemplates

LONG_TEXT = 20_000
"""Characters above which a prompt is tokenised on a thread, not to hold up the other streams."""


class Prompts:
    """For one event loop. Owns the processes that render the chat templates of adapters."""

    def __init__(self) -> None:
        self._templates = AdapterTemplates()

    async def of_chat(
        self,
        route: Route,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        variables: Mapping[str, Any],
    ) -> tuple[int, ...]:
        """Ids of the messages in the adapter's own template where it has one, else the base model's.

        Raises NoChatTemplate, BadTemplateInput, and InvalidParameter for text that is no Unicode.
        """
        template = self._templates.of(route)

        def encode() -> list[int]:
            return route.model.tokenizer.encode_chat(
                messages, add_generation_prompt=add_generation_prompt, chat_template=template, **variables
            )

        try:
            if template is None:
                size = sum(len(message["content"]) for message in messages)
                return tuple(await _encoded(size, encode))
            return tuple(await self._templates.use(template, encode))
        except NoChatTemplate as error:  # its own words name a folder, which is nobody else's business
            name = route.model.name
            raise NoChatTemplate(f"{name!r} has no chat template; use /v1/completions instead") from error

    def close(self) -> None:
        """No request is under way."""
        self._templates.close()


async def of_text(tokenizer: Tokenizer, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
    """Ids of a plain text. Raises InvalidParameter for text that is no Unicode."""

    def encode() -> list[int]:
        return tokenizer.encode(text, add_special_tokens=add_special_tokens)

    return tuple(await _encoded(len(text), encode))


async def _encoded(size: int, encode: Callable[[], list[int]]) -> list[int]:
    return await asyncio.to_thread(encode) if size > LONG_TEXT else encode()
