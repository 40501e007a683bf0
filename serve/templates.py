"""The chat templates of adapters, compiled once each for as long as they are in use."""

from collections import OrderedDict

from engine.chat_template import ChatTemplate
from serve.routing import Route

KEPT = 256
"""Compiled templates that are kept; the one unused for longest goes first."""


class AdapterTemplates:
    """By base model and text, so that versions with one template share it. For one thread."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._compiled: OrderedDict[tuple[str, str], ChatTemplate] = OrderedDict()

    def __len__(self) -> int:
        return len(self._compiled)

    def of(self, route: Route) -> ChatTemplate | None:
        """The template of the adapter that answers; None where its base model's holds.

        Raises UnsupportedModel for a text that does not parse, which no load accepts.
        """
        if route.chat_template is None:
            return None
        key = (route.model.name, route.chat_template)
        template = self._compiled.pop(key, None) or route.model.tokenizer.compile_template(key[1])
        self._compiled[key] = template
        if len(self._compiled) > self._kept:
            self._compiled.popitem(last=False)
        return template
