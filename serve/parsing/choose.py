"""Which form of calls and thoughts a model writes: as its settings say, else as its chat template shows."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from serve.config import ModelConfig
from serve.parsing import think
from serve.parsing.hermes import HermesParser
from serve.parsing.llama3 import Llama3Parser
from serve.parsing.mistral import ARGUMENTS, MistralParser
from serve.parsing.one_call import OneCallParser
from serve.parsing.parts import OutputParser
from serve.parsing.plain import PlainParser
from serve.parsing.think import ThinkParser

Form = Literal["hermes", "llama3", "mistral", "mistral-names"]
"""A way to write calls; Mistral's older and newer models share a parser and differ in what they write."""

MakeParser = Callable[[], OutputParser]

_PARSERS: Mapping[Form, MakeParser] = {
    "hermes": HermesParser,
    "llama3": Llama3Parser,
    "mistral": MistralParser,
    "mistral-names": MistralParser,
}
_OTHER_FORMS = ("<function=", "<arg_key>", "<parameter")
"""Within <tool_call>, of Qwen 3 Coder, GLM and others: not JSON, so not Hermes' form."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a model writes.

    form: of its calls; None where that is not known, and tools cannot be used. in_words: its template knows
    no tools, so they have to be described in its messages. thinks: a thought may come before its answer.
    """

    form: Form | None
    in_words: bool
    thinks: bool

    def parser(self, *, tools: bool, parallel: bool, opened: bool) -> MakeParser:
        """Makes a parser for each choice of a request.

        tools: whether calls are looked for. parallel: more than the first one are kept. opened: the prompt
        ends within a thought.
        """
        inner: MakeParser = PlainParser
        if tools and self.form is not None:
            calling = _PARSERS[self.form]
            inner = calling if parallel else lambda: OneCallParser(calling())
        return (lambda: ThinkParser(inner(), opened=opened)) if self.thinks else inner


def style_of(config: ModelConfig, template: str) -> Style:
    """template: the text of the chat template that a conversation is rendered in."""
    knows_tools = re.search(r"\btools\b", template) is not None
    thinks = (
        think.CLOSE in template if config.reasoning_parser == "auto" else config.reasoning_parser == "think"
    )
    return Style(_form(config, template, knows_tools), not knows_tools, thinks)


def _form(config: ModelConfig, template: str, knows_tools: bool) -> Form | None:
    if config.tool_parser == "none":
        return None
    if not knows_tools:  # they are described in this form
        return "hermes"
    if config.tool_parser == "mistral" or (config.tool_parser == "auto" and "[TOOL_CALLS]" in template):
        return "mistral-names" if ARGUMENTS in template else "mistral"
    if config.tool_parser != "auto":
        return config.tool_parser
    if "<tool_call>" in template and not any(mark in template for mark in _OTHER_FORMS):
        return "hermes"
    if "<|python_tag|>" in template or '"parameters": dictionary' in template:
        return "llama3"
    return None
