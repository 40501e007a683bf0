"""Feeding texts to parsers in pieces, for the tests of all of them."""

from collections.abc import Callable, Iterator
from itertools import count

from hypothesis import strategies as st

from serve.parsing.parts import CallArguments, CallStart, Content, NewId, OutputParser, Part, Reasoning, Reply

_JSON = (
    "{", "}", '"', "\\", ":", ",", "[", "]", '"name"', '"arguments"', '"parameters"', '"f"', '{"a": 1}',
    '{"name": "f", "arguments": ', '"id": "x"', "null", " ", "\n", "é", "🙂",
)  # fmt: skip
MakeParser = Callable[[NewId], OutputParser]


def ids() -> NewId:
    """call-0, call-1, ... in order."""
    numbers = count()
    return lambda: f"call-{next(numbers)}"


def parts_of(make: MakeParser, *pieces: str) -> list[Part]:
    """The parts of a text in these pieces, neighbours of one kind joined."""
    parser = make(ids())
    return joined([*(part for piece in pieces for part in parser.push(piece)), *parser.finish()])


def reply_of(make: MakeParser, *pieces: str) -> Reply:
    reply = Reply()
    reply.add(parts_of(make, *pieces))
    return reply


def joined(parts: list[Part]) -> list[Part]:
    made: list[Part] = []
    for part in parts:
        last = made[-1] if made else None
        if isinstance(part, Content) and isinstance(last, Content):
            made[-1] = Content(last.text + part.text)
        elif isinstance(part, Reasoning) and isinstance(last, Reasoning):
            made[-1] = Reasoning(last.text + part.text)
        elif isinstance(part, CallArguments) and isinstance(last, CallArguments) and part.index == last.index:
            made[-1] = CallArguments(part.index, last.text + part.text)
        else:
            made.append(part)
    return made


def starts(parts: list[Part]) -> Iterator[CallStart]:
    return (part for part in parts if isinstance(part, CallStart))


def cut(text: str, places: list[int]) -> list[str]:
    """The text, cut at these places (taken modulo its length)."""
    at = sorted({place % (len(text) + 1) for place in places})
    return [text[start:end] for start, end in zip([0, *at], [*at, len(text)], strict=True)]


def texts(*words: str) -> st.SearchStrategy[str]:
    """Texts that are full of a form's own words, of JSON, of space, and of anything."""
    return st.lists(st.one_of(st.sampled_from([*words, *_JSON]), st.text(max_size=3)), max_size=25).map(
        "".join
    )
