"""The events of one answer's stream as bytes: what all of its chunks have in common is encoded once."""

from __future__ import annotations

from serve import sse
from serve.answers.chat import ChatFormat
from serve.answers.text import TextFormat
from serve.choice import Piece

Format = ChatFormat | TextFormat


class Events:
    """One answer under way."""

    def __init__(self, shape: Format) -> None:
        self._shape = shape
        self._templates: dict[int, sse.Template] = {}

    def of(self, piece: Piece) -> bytes:
        """The events of all chunks of a piece, as the format makes them; empty where there is none."""
        if piece.finish is not None or not self._shape.only_text:
            return b"".join(map(sse.event, self._shape.chunks(piece)))
        return self._template(piece.index).event(piece.text) if piece.text else b""

    def _template(self, index: int) -> sse.Template:
        """Of a choice's chunks that carry text and nothing else."""
        found = self._templates.get(index)
        if found is None:
            found = sse.Template(lambda text: next(self._shape.chunks(Piece(index, text))))
            self._templates[index] = found
        return found
