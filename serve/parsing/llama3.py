"""Calls as Llama 3.1 and later write them: {"name": ..., "parameters": {...}}, several with ; between them.

They are all of an answer, or follow the token <|python_tag|>. A JSON object elsewhere is content.
"""

from typing import ClassVar

from serve.parsing.call_object import CallObject
from serve.parsing.parts import NewId, call_id
from serve.parsing.source import ReadingParser, Steps

TAG = "<|python_tag|>"


class Llama3Parser(ReadingParser):
    """Calls where an answer begins, or after the tag."""

    markers: ClassVar[tuple[str, ...]] = (TAG,)

    def __init__(self, new_id: NewId = call_id) -> None:
        super().__init__()
        self._new_id = new_id
        self._calls = 0

    def read(self) -> Steps[None]:
        """Calls, then content up to the tag, and again."""
        yield from self.source.skip_space()
        yield from self.source.accept(TAG)
        yield from self._some_calls()
        while (yield from self.text_until(TAG)):
            yield from self._some_calls()

    def _some_calls(self) -> Steps[None]:
        """Calls one after another, up to what is none."""
        while True:
            yield from self.source.skip_space()
            call = CallObject(self.source, self.tell, self._calls, self._new_id, ("parameters", "arguments"))
            whole = yield from call.read()
            self._calls += call.begun
            if not whole:
                return self.give_up()
            yield from self.source.skip_space()
            self.source.forget()
            yield from self.source.accept(";")
