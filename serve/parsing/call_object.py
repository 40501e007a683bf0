"""A call that is written as one JSON object, {"name": ..., "arguments": {...}}, in either order."""

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from serve.parsing.parts import CallArguments, CallStart, NewId, Part
from serve.parsing.source import Source, Steps

_IN_STRING = re.compile(r'[^"\\]*')
_NOTHING = re.compile("")
_BETWEEN = re.compile(r'[^"{}\[\]]*')
_SCALARS = ("id", "type")
"""Further keys that some models write; their values are texts and say nothing that a call's parts could."""


@dataclass(slots=True)
class CallObject:
    """Reads the `index`-th call of a text. It has `begun` once its name is known and its arguments are."""

    source: Source
    tell: Callable[[Part], None]
    index: int
    new_id: NewId
    keys: Collection[str] = ("arguments",)
    begun: bool = False
    _name: str = ""
    _held: str = ""

    def read(self) -> Steps[bool]:
        """Whether a whole call was read. Where it was not, what was kept of the source since it began is
        the text that fits no call: all of it, or what came after the arguments."""
        if not (yield from self.source.accept("{")):
            return False
        while True:
            if not (yield from self._member()):
                return False
            mark = yield from self.source.skip_space()
            if mark == "}":
                self.source.at += 1
                return self.begun
            if mark != ",":
                return False
            self.source.at += 1

    def _member(self) -> Steps[bool]:
        source = self.source
        yield from source.skip_space()
        key = yield from self._string()
        yield from source.skip_space()
        if key is None or not (yield from source.accept(":")):
            return False
        first = yield from source.skip_space()
        if key in self.keys and first == "{" and not (self.begun or self._held):
            return (yield from self._arguments())
        if key == "name" and not self._name:
            return (yield from self._named())
        return key in _SCALARS and (yield from self._string()) is not None

    def _named(self) -> Steps[bool]:
        self._name = (yield from self._string()) or ""
        if self._name and self._held:
            self._begin()
            self.tell(CallArguments(self.index, self._held))
            self.source.forget()
        return bool(self._name)

    def _arguments(self) -> Steps[bool]:
        """Give the arguments out as they come, or keep them until the name is known."""
        if self._name:
            self._begin()
        return (yield from arguments(self.source, self._more))

    def _more(self, text: str) -> None:
        if self.begun:
            self.tell(CallArguments(self.index, text))
            self.source.forget()
        else:
            self._held += text

    def _begin(self) -> None:
        self.begun = True
        self.tell(CallStart(self.index, self.new_id(), self._name))

    def _string(self) -> Steps[str | None]:
        """A JSON string, None where none comes next."""
        start = self.source.at
        if not (yield from self.source.accept('"')):
            return None
        if not (yield from _to_quote(self.source)):
            return None
        try:
            return str(json.loads(self.source.text[start : self.source.at]))
        except ValueError:
            return None


def arguments(source: Source, more: Callable[[str], None]) -> Steps[bool]:
    """Read one JSON object and hand it to `more` piece by piece; False where the text ends within it.

    Braces and quotes decide where it ends; whether it is good JSON is for whoever gets it to see. `more` may
    make the source forget.
    """
    depth, start = 0, source.at

    def give() -> None:
        nonlocal start
        if source.at > start:
            more(source.text[start : source.at])
        start = source.at

    while True:
        char = yield from source.run(_BETWEEN, give)
        source.at += len(char)
        if char == '"':
            char = '"' if (yield from _to_quote(source, give)) else ""
        depth += (char in ("{", "[")) - (char in ("}", "]"))
        if not char or not depth:
            give()
            return bool(char)


def _to_quote(source: Source, pause: Callable[[], None] = lambda: None) -> Steps[bool]:
    """Read to the quote that ends a string; `pause` is called where more text is needed."""
    while True:
        char = yield from source.run(_IN_STRING, pause)
        source.at += len(char)
        if char != "\\":
            return bool(char)
        source.at += len((yield from source.run(_NOTHING)))
