"""What the text of an answer is made of, and what every parser of it promises. Knows no model and no HTTP."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of a thought before the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """The `index`-th call of a function begins; comes once a call."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments: JSON text as the model wrote it."""

    index: int
    text: str


Part = Content | Reasoning | CallStart | CallArguments

NewId = Callable[[], str]
"""Makes the id of a call."""


def call_id() -> str:
    """An id in the form that vLLM gives them."""
    return f"chatcmpl-tool-{token_hex(16)}"


class OutputParser(Protocol):
    """Reads the text of one choice, in pieces as they come.

    Whatever the text and wherever it is cut, the joined parts are the same, and no text is lost: what looks
    like a call and is none comes out as content.
    """

    @property
    def markers(self) -> tuple[str, ...]:
        """Marks that must stay visible in the text, also where they are special tokens."""
        ...

    def push(self, text: str) -> list[Part]:
        """The parts that are certain now; text that may still turn out to be a mark is held back."""
        ...

    def finish(self) -> list[Part]:
        """The rest, where the text ends."""
        ...


@dataclass(slots=True)
class Call:
    """One call as far as it was written; `arguments` is JSON text, cut where the answer was cut."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Reply:
    """The parts of one choice, put together."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)

    def add(self, parts: Iterable[Part]) -> None:
        """Put further parts to it."""
        content, reasoning = [self.content], [self.reasoning]
        arguments: dict[int, list[str]] = {}
        for part in parts:
            match part:
                case Content(text):
                    content.append(text)
                case Reasoning(text):
                    reasoning.append(text)
                case CallStart(_, id_, name):
                    self.calls.append(Call(id_, name))
                case CallArguments(index, text):
                    arguments.setdefault(index, []).append(text)
        self.content, self.reasoning = "".join(content), "".join(reasoning)
        for index, texts in arguments.items():
            self.calls[index].arguments += "".join(texts)
