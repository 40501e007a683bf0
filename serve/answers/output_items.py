"""The output of an answer of the Responses API: items made of parts as they come, and the events of it.

One item is open at a time; a part of another kind closes it. Whole answers and streams come of the same
machine, so their items are equal. Numbers no events and knows nothing of the answer around the items.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal

from serve.parsing.parts import CallArguments, CallStart, Content, Part, Reasoning

Event = dict[str, Any]
"""What happened: its type and its fields; sequence_number is put in by whoever sends it."""

Status = Literal["in_progress", "completed", "incomplete"]
NewId = Callable[[str], str]
"""An id for an item of this answer, out of the prefix of its kind."""


class OutputItems:
    """Takes parts and gives events; `shown` is what has been made of them so far."""

    def __init__(self, new_id: NewId) -> None:
        self._new_id = new_id
        self._closed: list[dict[str, Any]] = []
        self._open: _Item | None = None

    def take(self, part: Part, logprobs: list[dict[str, Any]]) -> Iterator[Event]:
        """Events of one more part. logprobs: of its tokens; kept where it is content."""
        match part:
            case Content(text):
                yield from self._opened(_Message)
                yield from self._current.more(text, logprobs)
            case Reasoning(text):
                yield from self._opened(_Thought)
                yield from self._current.more(text, [])
            case CallStart(_, call_id, name):
                yield from self.close("completed")
                yield from self._begun(_Call(self._new_id, len(self._closed), call_id, name))
            case CallArguments(_, text):
                yield from self._current.more(text, [])

    def finish(self, status: Status, logprobs: list[dict[str, Any]]) -> Iterator[Event]:
        """Events of the end. An answer always has an item; logprobs of tokens that gave no text go to it."""
        if self._open is None and not self._closed:
            yield from self._opened(_Message)
        if logprobs and isinstance(self._open, _Message):
            yield from self._open.more("", logprobs)
        yield from self.close(status)

    def close(self, status: Status) -> Iterator[Event]:
        """Events of the end of the item that is open, if one is."""
        if self._open is not None:
            item, self._open = self._open, None
            yield from item.closing(status)
            self._closed.append(item.shown(status))

    def shown(self, status: Status) -> list[dict[str, Any]]:
        """All items; one that is still open has this status."""
        return [*self._closed, *([self._open.shown(status)] if self._open else [])]

    @property
    def _current(self) -> _Item:
        assert self._open is not None, "arguments come after the start of their call"
        return self._open

    def _opened(self, kind: type[_Message] | type[_Thought]) -> Iterator[Event]:
        if not isinstance(self._open, kind):
            yield from self.close("completed")
            yield from self._begun(kind(self._new_id, len(self._closed)))

    def _begun(self, item: _Item) -> Iterator[Event]:
        self._open = item
        yield from item.opening()


class _Item(ABC):
    """One item under way, at its place in the output."""

    prefix: ClassVar[str]

    def __init__(self, new_id: NewId, place: int) -> None:
        self.id = new_id(self.prefix)
        self._place = place
        self._texts: list[str] = []

    @property
    def _text(self) -> str:
        return "".join(self._texts)

    def opening(self) -> Iterator[Event]:
        """That it is there, still empty."""
        yield {
            "type": "response.output_item.added",
            "output_index": self._place,
            "item": self.empty(),
        }

    def closing(self, status: Status) -> Iterator[Event]:
        """That it is whole."""
        yield {
            "type": "response.output_item.done",
            "output_index": self._place,
            "item": self.shown(status),
        }

    @abstractmethod
    def empty(self) -> dict[str, Any]:
        """The item as it begins."""

    @abstractmethod
    def shown(self, status: Status) -> dict[str, Any]:
        """The item with what it has got."""

    @abstractmethod
    def more(self, text: str, logprobs: list[dict[str, Any]]) -> Iterator[Event]:
        """Text that comes to it."""

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": f"response.{kind}", "item_id": self.id, "output_index": self._place, **fields}


class _Texts(_Item):
    """An item whose content is one part of text."""

    name: ClassVar[str]
    """Of the part and of its events."""

    def opening(self) -> Iterator[Event]:
        yield from super().opening()
        yield self._event("content_part.added", content_index=0, part=self._part("", []))

    def more(self, text: str, logprobs: list[dict[str, Any]]) -> Iterator[Event]:
        self._texts.append(text)
        yield self._event(f"{self.name}.delta", content_index=0, delta=text, **self._beside(logprobs))

    def closing(self, status: Status) -> Iterator[Event]:
        logprobs = self._logprobs()
        yield self._event(f"{self.name}.done", content_index=0, text=self._text, **self._beside(logprobs))
        part = self._part(self._text, logprobs)
        yield self._event("content_part.done", content_index=0, part=part)
        yield from super().closing(status)

    def _logprobs(self) -> list[dict[str, Any]]:
        return []

    @abstractmethod
    def _beside(self, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
        """What the events of its text carry beside the text."""

    @abstractmethod
    def _part(self, text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
        """The part of its content."""


class _Message(_Texts):
    """Text for the reader."""

    prefix = "msg"
    name = "output_text"

    def __init__(self, new_id: NewId, place: int) -> None:
        super().__init__(new_id, place)
        self._known: list[dict[str, Any]] = []

    def more(self, text: str, logprobs: list[dict[str, Any]]) -> Iterator[Event]:
        self._known += logprobs
        yield from super().more(text, logprobs)

    def empty(self) -> dict[str, Any]:
        return {"id": self.id, "type": "message", "status": "in_progress", "content": [], "role": "assistant"}

    def shown(self, status: Status) -> dict[str, Any]:
        return self.empty() | {"status": status, "content": [self._part(self._text, self._known)]}

    def _logprobs(self) -> list[dict[str, Any]]:
        return self._known

    def _beside(self, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
        return {"logprobs": logprobs}

    def _part(self, text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
        return {"type": "output_text", "annotations": [], "logprobs": list(logprobs), "text": text}


class _Thought(_Texts):
    """Reasoning before the answer."""

    prefix = "rs"
    name = "reasoning_text"

    def empty(self) -> dict[str, Any]:
        return {"id": self.id, "type": "reasoning", "status": "in_progress", "summary": [], "content": []}

    def shown(self, status: Status) -> dict[str, Any]:
        return self.empty() | {"status": status, "content": [self._part(self._text, [])]}

    def _beside(self, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
        return {}

    def _part(self, text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
        return {"type": "reasoning_text", "text": text}


class _Call(_Item):
    """A call of a function. Arguments that were cut are never told to be done."""

    prefix = "fc"

    def __init__(self, new_id: NewId, place: int, call_id: str, name: str) -> None:
        super().__init__(new_id, place)
        self._call_id = call_id
        self._name = name

    def more(self, text: str, logprobs: list[dict[str, Any]]) -> Iterator[Event]:
        self._texts.append(text)
        yield self._event("function_call_arguments.delta", delta=text)

    def closing(self, status: Status) -> Iterator[Event]:
        if status == "completed":
            yield self._event("function_call_arguments.done", arguments=self._text)
        yield from super().closing(status)

    def empty(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "function_call",
            "status": "in_progress",
            "arguments": "",
            "call_id": self._call_id,
            "name": self._name,
        }

    def shown(self, status: Status) -> dict[str, Any]:
        return self.empty() | {"status": status, "arguments": self._text}
