"""The events of one answer's stream as bytes: what all of its chunks have in common is encoded once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from serve import sse
from serve.answers.chat import ChatFormat
from serve.answers.text import TextFormat
from serve.choice import Piece

Format = ChatFormat | TextFormat


class Events:
    """One answer under way. usage: that of the whole request so far."""

    def __init__(self, shape: Format, usage: Callable[[], dict[str, Any]]) -> None:
        self._shape = shape
        self._usage = usage
        self._only_text = shape.only_text
        self._templates: dict[int, sse.Template] = {}
        self._begun: set[int] = set()

    def opening(self, choices: int) -> bytes:
        """What comes before the first text."""
        return self._encoded(self._shape.opening(choices))

    def of(self, piece: Piece) -> bytes:
        """The events of all chunks of a piece, as the format makes them; empty where there is none."""
        if piece.finish is None and piece.index in self._begun and self._only_text:
            return self._template(piece.index).event(piece.text) if piece.text else b""
        made = self._encoded(self._shape.chunks(piece))
        if made:
            self._begun.add(piece.index)
        return made

    def closing(self) -> bytes:
        """What comes after the last text; the end of the stream itself is not in it."""
        return b"".join(map(sse.event, self._shape.closing(self._usage())))

    def _encoded(self, chunks: Iterable[dict[str, Any]]) -> bytes:
        if self._shape.shown.continuous_usage:
            chunks = [chunk | {"usage": self._usage()} for chunk in chunks]
        return b"".join(map(sse.event, chunks))

    def _template(self, index: int) -> sse.Template:
        """Of a choice's chunks that carry text and nothing else."""
        found = self._templates.get(index)
        if found is None:
            found = sse.Template(lambda text: next(self._shape.chunks(Piece(index, text))))
            self._templates[index] = found
        return found
