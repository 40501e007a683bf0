"""The input of a batch: where its lines are, and all that is wrong with them. It keeps no line in memory."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from serve.errors import BadRequest, InvalidBody
from serve.protocol.batches import BatchLine, parse_line
from serve.protocol.body import read_json

MAX_LINES = 50_000
MAX_PROBLEMS = 100
"""How many are told; with more the file is wrong as a whole."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its number from 1, where its bytes are, and what the client calls it."""

    number: int
    offset: int
    size: int
    custom_id: str


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a line, or with the file (line None)."""

    line: int | None
    code: str
    message: str
    param: str | None = None

    def plain(self) -> dict[str, Any]:
        """As a batch shows it."""
        return {"code": self.code, "line": self.line, "message": self.message, "param": self.param}


@dataclass(slots=True)
class Checked:
    """`model` is what all lines ask for, None where they differ or there is a problem."""

    lines: list[Line] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    model: str | None = None


def check_lines(file: IO[bytes], endpoint: str, max_bytes: int) -> Checked:
    """Read a file of lines through, none of which may be longer than `max_bytes`. Blank lines are none."""
    checked, numbers, models = Checked(), dict[str, int](), set[str]()
    for number, offset, raw in _raw_lines(file, max_bytes):
        if len(checked.lines) == MAX_LINES:
            checked.problems.append(_too_many())
        if len(checked.problems) >= MAX_PROBLEMS or len(checked.lines) == MAX_LINES:
            break
        try:
            line = _parsed(raw, endpoint, max_bytes)
        except BadRequest as error:
            checked.problems.append(_problem(number, error))
            continue
        first = numbers.setdefault(line.custom_id, number)
        if first != number:
            message = f"custom_id {line.custom_id!r} is on line {first} already; each may be there once"
            checked.problems.append(Problem(number, "duplicate_custom_id", message, "custom_id"))
            continue
        checked.lines.append(Line(number, offset, len(raw), line.custom_id))
        models.add(str(line.body.get("model")))
    if not (checked.lines or checked.problems):
        checked.problems.append(Problem(None, "empty_file", "the file has no line; at least one is needed"))
    checked.model = models.pop() if len(models) == 1 and not checked.problems else None
    return checked


def read_line(file: IO[bytes], line: Line) -> BatchLine:
    """A line that was found sound. Does not move the file."""
    return parse_line(read_json(os.pread(file.fileno(), line.size, line.offset)))


def _raw_lines(file: IO[bytes], max_bytes: int) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and bytes of each line that is not blank; of one that is too long its beginning."""
    file.seek(0)
    number = offset = 0
    while raw := file.readline(max_bytes + 2):
        number += 1
        if raw.strip():
            yield number, offset, raw
        offset += len(raw)
        while raw and not raw.endswith(b"\n"):
            raw = file.readline(max_bytes + 2)
            offset += len(raw)


def _parsed(raw: bytes, endpoint: str, max_bytes: int) -> BatchLine:
    if len(raw.removesuffix(b"\n")) > max_bytes:
        raise InvalidBody(f"the line is longer than the {max_bytes} bytes allowed")
    line = parse_line(read_json(raw))
    if line.url != endpoint:
        raise BadRequest(f"url is {line.url!r}; allowed: {endpoint!r}, the endpoint of the batch", "url")
    return line


def _problem(number: int, error: BadRequest) -> Problem:
    code = "invalid_json_line" if isinstance(error, InvalidBody) else "invalid_request"
    code = {"url": "mismatched_endpoint", "method": "invalid_method"}.get(error.param or "", code)
    return Problem(number, code, str(error).replace("the body is", "the line is"), error.param)


def _too_many() -> Problem:
    return Problem(None, "too_many_requests", f"the file has more than the {MAX_LINES} requests allowed")
