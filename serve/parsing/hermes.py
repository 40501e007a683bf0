"""Calls of Hermes, Qwen 2.5 and Qwen 3: <tool_call>{"name": ..., "arguments": {...}}</tool_call>."""

from typing import ClassVar

from serve.parsing.call_object import CallObject
from serve.parsing.parts import NewId, call_id
from serve.parsing.source import ReadingParser, Steps

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class HermesParser(ReadingParser):
    """Any number of calls, with text before, between and after them."""

    markers: ClassVar[tuple[str, ...]] = (OPEN, CLOSE)

    def __init__(self, new_id: NewId = call_id) -> None:
        super().__init__()
        self._new_id = new_id

    def read(self) -> Steps[None]:
        """Content, and the calls in it."""
        index = 0
        while (yield from self.text_until(OPEN)):
            yield from self.source.skip_space()
            call = CallObject(self.source, self.tell, index, self._new_id)
            whole = yield from call.read()
            index += call.begun
            if not whole:
                self.give_up()
                continue
            self.source.forget()
            yield from self.source.skip_space()
            if (yield from self.source.accept(CLOSE)):
                yield from self.source.skip_space()
            self.source.forget()
