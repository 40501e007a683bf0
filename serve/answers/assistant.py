"""The assistant's message of each choice, out of the parts that a parser finds in its text.

A stream's deltas and the whole message are made of the same parts, so that they agree. Reasoning has the name
that vLLM gives it: `reasoning`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from serve.choice import Piece
from serve.parsing.choose import MakeParser
from serve.parsing.parts import CallArguments, CallStart, Content, OutputParser, Part, Reasoning, Reply
from serve.parsing.plain import PlainParser

Delta = dict[str, Any]


class Assistant:
    """The messages of one answer.

    named: its one function was chosen by the client. reasoning: whether thoughts are shown.
    """

    def __init__(self, parser: MakeParser, *, named: bool = False, reasoning: bool = True) -> None:
        self._make = parser
        self._named = named
        self._reasoning = reasoning
        self._parsers: dict[int, OutputParser] = {}
        self._parts: dict[int, list[Part]] = {}

    @property
    def only_content(self) -> bool:
        """Whether all text of all choices is content, as it comes."""
        return self._make is PlainParser

    def deltas(self, piece: Piece) -> list[Delta]:
        """What a piece adds to the message of its choice; the last piece brings what was held back."""
        parser = self._parsers.get(piece.index)
        if parser is None:
            parser = self._parsers[piece.index] = self._make()
            self._parts[piece.index] = []
        parts = parser.push(piece.text)
        if piece.finish is not None:
            parts = [*parts, *parser.finish()]
        if not self._reasoning:
            parts = [part for part in parts if not isinstance(part, Reasoning)]
        self._parts[piece.index] += parts
        return list(_deltas(parts))

    def finish_reason(self, last: Piece) -> str | None:
        """tool_calls where the model ended its answer by itself after a call that it was free to make."""
        by_itself = last.finish == "stop" and last.stop_reason is None
        if not by_itself or self._named:
            return last.finish
        called = any(isinstance(part, CallStart) for part in self._parts[last.index])
        return "tool_calls" if called else last.finish

    def message(self, index: int) -> dict[str, Any]:
        """The message of a choice as far as its pieces were read."""
        reply = Reply()
        reply.add(self._parts[index])
        beside = bool(reply.calls or reply.reasoning)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": reply.content or (None if beside else ""),
            "refusal": None,
        }
        if reply.reasoning:
            message["reasoning"] = reply.reasoning
        if reply.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in reply.calls
            ]
        return message


def _deltas(parts: Sequence[Part]) -> Iterator[Delta]:
    """A delta a part; the beginning of a call takes its first arguments along."""
    rest = iter(parts)
    part = next(rest, None)
    while part is not None:
        after = next(rest, None)
        match part:
            case Content(text):
                yield {"content": text}
            case Reasoning(text):
                yield {"reasoning": text}
            case CallStart(index, id_, name):
                first = ""
                if isinstance(after, CallArguments):
                    first, after = after.text, next(rest, None)
                function = {"name": name, "arguments": first}
                yield {"tool_calls": [{"index": index, "id": id_, "type": "function", "function": function}]}
            case CallArguments(index, text):
                yield {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
        part = after
