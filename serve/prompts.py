"""Texts and conversations to token ids, by the tokenizer and the chat template of whoever answers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from engine.errors import NoChatTemplate
from engine.tokenizer import Tokenizer
from serve.errors import InvalidField
from serve.parsing import think
from serve.parsing.choose import Style, style_of
from serve.parsing.prompting import in_words
from serve.routing import Route
from serve.talk import Talk
from serve.templates import AdapterTemplates

LONG = 20_000
"""Characters, or tokens, above which a prompt is read on a thread, not to hold up the other streams."""
_MESSAGE = 100
"""Characters that a message counts as beside its own: each costs the template a few microseconds."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Written:
    """A conversation as a prompt. messages: as the template saw them. opened: it ends within a thought."""

    ids: tuple[int, ...]
    messages: tuple[Mapping[str, Any], ...]
    style: Style
    opened: bool


class Prompts:
    """For one event loop. Owns the processes that render the chat templates of adapters."""

    def __init__(self) -> None:
        self._templates = AdapterTemplates()

    async def of_chat(self, route: Route, talk: Talk) -> Written:
        """The prompt in the adapter's own template where it has one, else in the base model's.

        Raises NoChatTemplate, BadTemplateInput, and InvalidParameter for text that is no Unicode.
        """
        tokenizer, confined = route.model.tokenizer, self._templates.of(route)
        template = confined or tokenizer.template_for(bool(talk.tools))
        if template is None:
            raise NoChatTemplate(f"{route.model.name!r} has no chat template; use /v1/completions instead")
        style = style_of(route.model.config, template.source)
        messages = in_words(talk.messages, talk.tools) if style.in_words else talk.messages
        tools = None if style.in_words else list(talk.tools) or None

        def write() -> Written:
            text = tokenizer.render_chat(
                messages,
                tools,
                talk.add_generation_prompt,
                continue_final_message=talk.continue_final_message,
                chat_template=confined,
                variables=talk.variables,
            )
            ids = tokenizer.encode(text, add_special_tokens=False)
            return Written(tuple(ids), messages, style, think.is_open(_last_words(text, talk)))

        if confined is not None:
            return await self._templates.use(confined, write)
        return await beside(sum(map(_size, messages)) + sum(map(_size, tools or ())), write)

    def close(self) -> None:
        """No request is under way."""
        self._templates.close()


def _size(part: Mapping[str, Any]) -> int:
    return _MESSAGE + sum(len(str(value)) for value in part.values())


def _last_words(prompt: str, talk: Talk) -> str:
    """What of a prompt belongs to the answer already, or ends with that."""
    return (
        talk.messages[-1]["content"] if talk.continue_final_message else prompt.rstrip()[-len(think.OPEN) :]
    )


async def of_text(tokenizer: Tokenizer, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
    """Ids of a plain text. Raises InvalidParameter for text that is no Unicode."""

    def encode() -> list[int]:
        return tokenizer.encode(text, add_special_tokens=add_special_tokens)

    return tuple(await beside(len(text), encode))


def refuse_unknown(ids: Sequence[int], vocabulary: int, param: str) -> None:
    """Raises InvalidField for ids, one at least, that a model of so many tokens does not have."""
    if (worst := max(ids)) >= vocabulary:
        raise InvalidField(f"{param} has token id {worst}; allowed: 0 to {vocabulary - 1}", param)


async def beside(size: int, work: Callable[[], T]) -> T:
    """What `work` makes of `size` characters or tokens: on a thread where those are many."""
    return await asyncio.to_thread(work) if size > LONG else work()
