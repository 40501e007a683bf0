"""Records as bytes: msgpack, with integers of any size, as JSON has them. Knows no files."""

from typing import Any

import msgpack

_WIDE = 1
"""Code of an integer of more than 64 bits; its data are its decimal digits."""


def pack(value: Any) -> bytes:
    """Lists, dicts, texts, numbers and times as bytes."""
    data: bytes = msgpack.packb(value, datetime=True, default=_wide)
    return data


def unpack(data: bytes) -> Any:
    """What was packed; tuples are lists."""
    return msgpack.unpackb(data, timestamp=3, ext_hook=_read)


def _wide(value: Any) -> msgpack.ExtType:
    if isinstance(value, int):
        return msgpack.ExtType(_WIDE, str(value).encode())
    raise TypeError(f"a record holds {type(value).__name__} {value!r:.80}; allowed: what JSON has, and times")


def _read(code: int, data: bytes) -> int:
    if code != _WIDE:
        raise ValueError(f"extension {code} in a record; allowed: {_WIDE}")
    return int(data)
