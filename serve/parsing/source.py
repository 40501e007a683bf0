"""Text that arrives in pieces, and parsers that read it as if it were all there.

A parser is a generator that yields where it needs more text. What it decides depends on the text alone and
never on where that was cut; each character is read once.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import TypeVar

from serve.parsing.parts import Content, Part, Reasoning

T = TypeVar("T")
Kind = type[Content] | type[Reasoning]
Steps = Generator[None, None, T]
"""Yields for more text, and returns what it read."""

_SPACE = re.compile(r"\s*")


class Source:
    """The text so far, read up to `at`. `ended`: there will be no more."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False

    def add(self, text: str) -> None:
        """More text has come."""
        self.text += text

    def forget(self) -> None:
        """Nothing that has been read is needed again."""
        self.text, self.at = self.text[self.at :], 0

    def run(self, pattern: re.Pattern[str], pause: Callable[[], None] = lambda: None) -> Steps[str]:
        """Read on while `pattern` matches, and return the character after that, "" at the end of the text.

        pattern: one that also matches nothing. pause: called where more text is needed; it may forget.
        """
        while True:
            match = pattern.match(self.text, self.at)
            assert match is not None
            self.at = match.end()
            if self.at < len(self.text) or self.ended:
                return self.text[self.at : self.at + 1]
            pause()
            yield

    def skip_space(self) -> Steps[str]:
        """Read on to what is no space, and return that character, "" at the end of the text."""
        return (yield from self.run(_SPACE))

    def accept(self, word: str) -> Steps[bool]:
        """Read `word` if it comes next; else nothing."""
        while len(self.text) - self.at < len(word) and word.startswith(self.text[self.at :]):
            if self.ended:
                return False
            yield
        if not self.text.startswith(word, self.at):
            return False
        self.at += len(word)
        return True


class ReadingParser(ABC):
    """An OutputParser whose `read` is such a generator; `source` is what it reads, `tell` how it answers."""

    def __init__(self) -> None:
        self.source = Source()
        self._told: list[Part] = []
        self._reading = self.read()

    @abstractmethod
    def read(self) -> Steps[None]:
        """Reads all of the text; ends when the text has ended."""

    def push(self, text: str) -> list[Part]:
        """The parts that are certain now."""
        self.source.add(text)
        return self._go_on()

    def finish(self) -> list[Part]:
        """The rest."""
        self.source.ended = True
        return self._go_on()

    def tell(self, *parts: Part) -> None:
        """Give out parts."""
        self._told += parts

    def text_until(self, mark: str, kind: Kind = Content) -> Steps[bool]:
        """Give out text up to `mark` and read that; False where the text ends without it.

        Space before the mark belongs to it, and what was read is kept from that space on.
        """
        source = self.source
        while True:
            found = source.text.find(mark, source.at)
            if found >= 0:
                self._give(kind, _before_space(source, found))
                source.at = source.text.index(mark) + len(mark)
                return True
            if source.ended:
                self._give(kind, len(source.text))
                return False
            self._give(kind, _certain(source, mark))
            yield

    def give_up(self) -> None:
        """What is kept and was read turns out to be content."""
        end, self.source.at = self.source.at, 0
        self._give(Content, end)

    def _give(self, kind: Kind, end: int) -> None:
        if end > self.source.at:
            self.tell(kind(self.source.text[self.source.at : end]))
        self.source.at = end
        self.source.forget()

    def _go_on(self) -> list[Part]:
        next(self._reading, None)
        told, self._told = self._told, []
        return told


def _before_space(source: Source, end: int) -> int:
    return source.at + len(source.text[source.at : end].rstrip())


def _certain(source: Source, mark: str) -> int:
    """Where that end of the text begins which may still become space and the mark."""
    end = len(source.text)
    longest = min(end - source.at, len(mark) - 1)
    begun = next((n for n in range(longest, 0, -1) if mark.startswith(source.text[end - n :])), 0)
    return _before_space(source, end - begun)
