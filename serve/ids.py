"""Request ids: UUID version 7 (RFC 9562), whose first 48 bits are the time in milliseconds.

The database partitions requests by these bits, so an id alone tells the week of its row.
"""

import secrets
import time
from uuid import UUID

_VERSION = 7 << 76
_VARIANT = 2 << 62


def uuid7() -> str:
    """A new id; ids of one process are in order of time to the millisecond."""
    milliseconds = time.time_ns() // 1_000_000
    random = secrets.randbits(74)
    low = random & ((1 << 62) - 1)
    return str(UUID(int=(milliseconds << 80) | _VERSION | ((random >> 62) << 64) | _VARIANT | low))


def bare_id(value: str) -> str:
    """The id of a request out of itself or of its answer's id. Raises ValueError for anything else."""
    for prefix in ("chatcmpl-", "cmpl-", "resp_", "embd-", "score-"):
        if value.startswith(prefix):
            return str(UUID(value.removeprefix(prefix)))
    return str(UUID(value))
