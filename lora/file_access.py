"""Reading the files of an adapter folder, so that whatever is wrong with one is told as its error."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lora.errors import AdapterNotFound, InvalidConfig, LimitExceeded, UnreadableFile


@contextmanager
def accessing(path: Path) -> Iterator[None]:
    """What the system says of a file becomes AdapterNotFound or UnreadableFile."""
    try:
        yield
    except FileNotFoundError as error:
        raise AdapterNotFound(path.parent.name, path.name) from error
    except OSError as error:
        raise UnreadableFile(path.name, error.strerror or type(error).__name__) from error


def read_bounded(path: Path, limit: int) -> bytes:
    """A whole file of at most `limit` bytes. Raises AdapterNotFound, LimitExceeded or UnreadableFile."""
    with accessing(path):
        if not path.is_file():
            raise AdapterNotFound(path.parent.name, path.name)
        if (size := path.stat().st_size) > limit:
            raise LimitExceeded(f"size of {path.name} in bytes", size, limit)
        with path.open("rb") as file:
            content = file.read(limit + 1)
    if len(content) > limit:
        raise LimitExceeded(f"size of {path.name} in bytes", len(content), limit)
    return content


def read_json_object(path: Path, limit: int) -> dict[str, Any]:
    """The object a JSON file holds, every name once and every number finite or spelled as Python spells it.

    Raises InvalidConfig with the file's name beside what read_bounded raises.
    """
    content = read_bounded(path, limit)
    try:
        found = json.loads(content, object_pairs_hook=each_name_once)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(path.name, str(error), "a JSON object") from error
    if not isinstance(found, dict):
        raise InvalidConfig(path.name, found, "a JSON object")
    return found


def each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For json.loads: an object whose names are all different. Raises ValueError naming one that is not."""
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"the name {name[:80]!r} occurs twice in one object")
        result[name] = value
    return result
