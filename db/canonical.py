"""The one byte form of a JSON value, for hashes that must agree between Python and SQL.

Keys sorted by code point, no spaces, text unescaped but for what JSON demands. `obs.canonical` and
`obs.prompt_hash` in the database are the same functions.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any


def canonical_json(value: Any) -> str:
    """Return the canonical text of a JSON value; NaN and infinities raise ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_hex(text: str) -> str:
    """Return the sha256 of the UTF-8 bytes of a text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def prompt_hash(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the hex digest that keeps a prompt out of training when it is held out for evaluation."""
    return sha256_hex(canonical_json(list(messages)))
