"""Calls as Mistral's models write them, in either of two forms.

Older: [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]. Newer, once a call:
[TOOL_CALLS]name[ARGS]{...}, some with [CALL_ID]... before [ARGS].
"""

import re
import secrets
import string
from typing import ClassVar

from serve.parsing.call_object import CallObject, arguments
from serve.parsing.parts import CallArguments, CallStart, NewId
from serve.parsing.source import ReadingParser, Steps

MARK, ID, ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_NAME = re.compile(r"[A-Za-z0-9_.-]*")
_ID_LETTERS = string.ascii_letters + string.digits


def short_id() -> str:
    """Nine letters and digits: Mistral's templates refuse other ids in a conversation."""
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(9))


class MistralParser(ReadingParser):
    """Content, and calls after each mark."""

    markers: ClassVar[tuple[str, ...]] = (MARK, ID, ARGUMENTS)

    def __init__(self, new_id: NewId = short_id) -> None:
        super().__init__()
        self._new_id = new_id
        self._calls = 0

    def read(self) -> Steps[None]:
        """Content, and the calls in it."""
        while (yield from self.text_until(MARK)):
            first = yield from self.source.skip_space()
            if not (yield from (self._listed() if first == "[" else self._named())):
                self.give_up()
                continue
            yield from self.source.skip_space()
            self.source.forget()

    def _listed(self) -> Steps[bool]:
        """Objects in a list; whether all of it was read."""
        mark = "["
        while (yield from self.source.accept(mark)):
            yield from self.source.skip_space()
            call = CallObject(self.source, self.tell, self._calls, self._new_id)
            whole = yield from call.read()
            self._calls += call.begun
            if not whole:
                return False
            self.source.forget()
            yield from self.source.skip_space()
            mark = ","
        return (yield from self.source.accept("]"))

    def _named(self) -> Steps[bool]:
        """A name and an object; whether both were read."""
        name = yield from self._word()
        if (yield from self.source.accept(ID)):
            yield from self._word()
        yield from self.source.accept(ARGUMENTS)
        first = yield from self.source.skip_space()
        if not name or first != "{":
            return False
        index, self._calls = self._calls, self._calls + 1
        self.tell(CallStart(index, self._new_id(), name))
        self.source.forget()

        def more(text: str) -> None:
            self.tell(CallArguments(index, text))
            self.source.forget()

        return (yield from arguments(self.source, more))

    def _word(self) -> Steps[str]:
        start = self.source.at
        yield from self.source.run(_NAME)
        return self.source.text[start : self.source.at]
