"""The parser of a model that has no marks: all of its text is content."""

from typing import ClassVar

from serve.parsing.parts import Content, Part


class PlainParser:
    """An OutputParser that finds nothing but content."""

    markers: ClassVar[tuple[str, ...]] = ()

    def push(self, text: str) -> list[Part]:
        """The text itself."""
        return [Content(text)] if text else []

    def finish(self) -> list[Part]:
        """Nothing is ever held back."""
        return []
