"""Names of full KV blocks: a chained hash over everything their content depends on.

The root of a chain is what the tokens do not say: the adapter's digest and the cache salt. Each full
block's key covers its parent's key and its own tokens, so equal keys mean equal history. Adapter names
never enter: a name can be given to other weights, a digest cannot. Knows no pool and no sequence.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import sha256


def root_key(adapter: str | None, cache_salt: str) -> bytes:
    """Key that starts the chain. Fields are tagged and length-prefixed, so no two pairs collide."""
    fields = (b"noria.prefix.1", b"" if adapter is None else b"+" + adapter.encode(), cache_salt.encode())
    return sha256(b"".join(len(field).to_bytes(8, "big") + field for field in fields)).digest()


def child_key(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Key of the block that follows `parent` in its chain and holds `token_ids`."""
    return sha256(parent + array("q", token_ids).tobytes()).digest()
