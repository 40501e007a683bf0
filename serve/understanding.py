"""What is fixed of a chat before it starts: its prompt, how its answers are parsed, what they have to be."""

from dataclasses import dataclass

from serve.errors import InvalidField
from serve.order import Prompt
from serve.parsing.choose import MakeParser
from serve.parsing.forcing import grammar_of
from serve.prompts import Prompts
from serve.routing import Route
from serve.talk import Calls, Talk


@dataclass(frozen=True, slots=True)
class Understood:
    """parser: makes one for each choice."""

    prompt: Prompt
    parser: MakeParser


async def understand(prompts: Prompts, route: Route, talk: Talk, calls: Calls) -> Understood:
    """Raises InvalidField for tools that the model has no known form for, and what of_chat() raises."""
    written = await prompts.of_chat(route, talk)
    style, tokenizer = written.style, route.model.tokenizer
    if talk.tools and style.form is None:
        raise InvalidField(
            f"tools cannot be used with {route.model.name!r}: in which form it writes calls is not known; "
            "its setting tool_parser says so",
            "tools",
        )
    parser = style.parser(tools=bool(talk.tools), parallel=calls.parallel, opened=written.opened)
    grammar = None
    if calls.demanded and style.form is not None:
        several = calls.parallel and not calls.named
        grammar = grammar_of(
            style.form,
            calls.demanded,
            several=several,
            thinks=style.thinks,
            opened=written.opened,
            special=tokenizer.special_id,
        )
    return Understood(Prompt(written.ids, written.messages, grammar), parser)
