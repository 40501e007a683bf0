"""Reasoning between <think> and </think> before the answer, as DeepSeek R1, QwQ and Qwen 3 write it."""

from serve.parsing.parts import OutputParser, Reasoning
from serve.parsing.source import ReadingParser, Steps

OPEN, CLOSE = "<think>", "</think>"


class ThinkParser(ReadingParser):
    """Finds the thought; `inner` reads what comes after it.

    opened: the prompt ends with the open mark, so that the text begins within the thought. A thought may
    come first only; the marks are content elsewhere. Space beside the marks belongs to them.
    """

    def __init__(self, inner: OutputParser, *, opened: bool) -> None:
        super().__init__()
        self._inner = inner
        self._opened = opened

    @property
    def markers(self) -> tuple[str, ...]:
        """Its own, and those of the inner parser."""
        return (OPEN, CLOSE, *self._inner.markers)

    def read(self) -> Steps[None]:
        """The thought if there is one, then what the inner parser finds."""
        if self._opened or (yield from self._opens()):
            yield from self.source.skip_space()
            self.source.forget()
            yield from self.text_until(CLOSE, Reasoning)
            yield from self.source.skip_space()
            self.source.forget()
        while not self.source.ended:
            self._hand_on()
            yield
        self._hand_on()
        self.tell(*self._inner.finish())

    def _opens(self) -> Steps[bool]:
        yield from self.source.skip_space()
        if (yield from self.source.accept(OPEN)):
            return True
        self.source.at = 0
        return False

    def _hand_on(self) -> None:
        text, self.source.at = self.source.text[self.source.at :], len(self.source.text)
        self.source.forget()
        self.tell(*self._inner.push(text))


def is_open(text: str) -> bool:
    """Whether the text ends within a thought."""
    return text.rfind(OPEN) > text.rfind(CLOSE)
