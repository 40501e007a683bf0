"""Server-sent events of an OpenAI-compatible stream, from bytes in pieces of any size."""

from __future__ import annotations

DONE = b"[DONE]"


class EventReader:
    """Takes bytes as they come and gives back the data of every event that is complete."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """Data of the events that this piece has completed; comments and other fields are left out."""
        *lines, self._held = (self._held + piece).split(b"\n")
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]
