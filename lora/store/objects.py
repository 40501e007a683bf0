"""What every store of plain objects does, wherever it keeps its bytes. It knows nothing of what they are.

They live in the same folder or bucket as the adapters, below objects/, and neither sees the other.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Protocol

from lora.errors import InvalidKey
from lora.store.protocol import ABANDONED_S

OBJECTS = "objects/"
_KEY = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*")
_PREFIX = re.compile(r"([A-Za-z0-9_-]+/)*[A-Za-z0-9_-]*")
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of a list. `bytes` is its size, `modified` has a time zone."""

    key: str
    bytes: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class Content:
    """What was written: its size in bytes, and the hexadecimal sha256."""

    bytes: int
    sha256: str


class ObjectStore(Protocol):
    """Objects under keys such as "files/a-1". Every method may be called from any thread and any process.

    Every method raises StoreUnavailable when the store does not answer or refuses access, and InvalidKey for
    a key that is no plain path.
    """

    def put(self, key: str, content: IO[bytes]) -> Content:
        """Keep what `content` holds from its beginning, piece by piece; it is seen whole or not at all.

        An object that is there already is replaced. `content` can seek, and may be closed here.
        """

    def fetch(self, key: str, into: IO[bytes], sha256: str) -> None:
        """Write an object into an empty file. Raises NoObject, or DamagedObject for another sha256."""

    def read(self, key: str, start: int, size: int) -> bytes:
        """At most `size` bytes, at least one, from `start` on, where there are any. Raises NoObject."""

    def delete(self, key: str) -> None:
        """Remove an object, if it is there."""

    def list(self, prefix: str = "") -> list[StoredObject]:
        """Objects whose key begins with `prefix`, in order of key."""

    def sweep(self, older_than_s: float = ABANDONED_S) -> int:
        """Remove what writers that died have left half done, that old at least; returns how many pieces."""


def check_key(key: str) -> str:
    """The key itself. Raises InvalidKey."""
    if not _KEY.fullmatch(key):
        raise InvalidKey(key)
    return key


def check_prefix(prefix: str) -> str:
    """The beginning of keys itself. Raises InvalidKey."""
    if not _PREFIX.fullmatch(prefix):
        raise InvalidKey(prefix)
    return prefix


def content_of(file: IO[bytes]) -> Content:
    """What a file holds; it stands at its end afterwards."""
    file.seek(0)
    digest, size = hashlib.sha256(), 0
    while piece := file.read(_PIECE):
        digest.update(piece)
        size += len(piece)
    return Content(size, digest.hexdigest())
