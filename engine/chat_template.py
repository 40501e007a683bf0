"""Chat templates: the Jinja text a model or an adapter carries, run in a sandbox as transformers runs it.

Knows messages and special tokens, no token ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import BadTemplateInput, UnsupportedModel

MAX_TEXT = 4 << 20
"""Characters of a prompt: about a million tokens."""

# What a template's expressions raise on messages of a shape that it was not written for.
_TEMPLATE_FAULTS = (
    TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError,
    MemoryError,
)  # fmt: skip

# Beside Jinja's own: what Python makes of the code that Jinja writes, and of constants that it works out.
_SOURCE_FAULTS = (TemplateSyntaxError, SyntaxError, RecursionError, MemoryError, ValueError, ArithmeticError)


class ChatTemplate:
    """One compiled template. Raises UnsupportedModel where it does not parse."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self.source = source
        try:
            self._template = environment.from_string(source)
        except _SOURCE_FAULTS as error:
            raise UnsupportedModel(f"the chat template does not parse: {error}") from error
        self._special_tokens = dict(special_tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any],
    ) -> str:
        """The prompt text. Raises BadTemplateInput with the template's own reason, or for too long a text."""
        context = {
            **self._special_tokens,
            **variables,
            "messages": messages,
            "tools": tools,
            "documents": variables.get("documents"),
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return _bounded(self._template.generate(context))
        except _TEMPLATE_FAULTS as error:
            reason = str(error) or type(error).__name__
            raise BadTemplateInput(f"the chat template refused the messages: {reason}") from error


def _bounded(parts: Iterable[str]) -> str:
    """The text of all parts; a template that goes on for ever is left as soon as that is too long."""
    written: list[str] = []
    room = MAX_TEXT
    for part in parts:
        written.append(part)
        room -= len(part)
        if room < 0:
            raise BadTemplateInput(
                f"the chat template wrote more than {MAX_TEXT} characters, the most allowed"
            )
    return "".join(written)


class _GenerationBlock(Extension):
    """{% generation %} ... {% endgeneration %} marks what is trained on; here it is just its content."""

    tags = {"generation"}  # noqa: RUF012  Jinja declares it as an instance attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own would escape HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
