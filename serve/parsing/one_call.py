"""parallel_tool_calls: false: the first call of an answer is kept, and further ones are left out."""

from serve.parsing.parts import CallArguments, CallStart, OutputParser, Part


class OneCallParser:
    """An OutputParser that keeps one call of what `inner` finds."""

    def __init__(self, inner: OutputParser) -> None:
        self._inner = inner

    @property
    def markers(self) -> tuple[str, ...]:
        """Those of the inner parser."""
        return self._inner.markers

    def push(self, text: str) -> list[Part]:
        """What the inner parser finds, without further calls."""
        return _first(self._inner.push(text))

    def finish(self) -> list[Part]:
        """The rest, without further calls."""
        return _first(self._inner.finish())


def _first(parts: list[Part]) -> list[Part]:
    return [part for part in parts if not (isinstance(part, CallStart | CallArguments) and part.index)]
