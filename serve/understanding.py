"""What is fixed of a chat before it starts: its prompt, how its answers are parsed, what they have to be."""

from engine.grammar import Grammar
from serve.errors import InvalidField
from serve.order import Prompt
from serve.parsing.forcing import framed, grammar_of
from serve.prompts import Prompts
from serve.routing import Route
from serve.talk import Calls, Talk


async def understand(
    prompts: Prompts, route: Route, talk: Talk, calls: Calls, form: Grammar | None
) -> Prompt:
    """The prompt of a chat, with what its answers are read by and have to keep to.

    form: of the text of an answer, where that is asked for.
    Raises InvalidField for tools that the model has no known form for, and what of_chat() raises.
    """
    written = await prompts.of_chat(route, talk)
    style, tokenizer = written.style, route.model.tokenizer
    if talk.tools and style.form is None:
        raise InvalidField(
            f"tools cannot be used with {route.model.name!r}: in which form it writes calls is not known; "
            "its setting tool_parser says so",
            "tools",
        )
    parser = style.parser(tools=bool(talk.tools), parallel=calls.parallel, opened=written.opened)
    several, special = calls.parallel and not calls.named, tokenizer.special_id
    may = {"several": several, "thinks": style.thinks, "opened": written.opened}
    grammar = None
    if form is not None:
        grammar = framed(form, style.form, calls.offered, special=special, **may)
    elif calls.demanded and style.form is not None:
        grammar = grammar_of(style.form, calls.demanded, special=special, **may)
    markers = (tokenizer.special_id(marker) for marker in parser().markers)
    visible = frozenset(id_ for id_ in markers if id_ is not None)
    return Prompt(written.ids, written.messages, parser=parser, visible=visible, grammar=grammar)
