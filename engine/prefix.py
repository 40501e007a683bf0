"""Names of full KV blocks: a chained hash over everything their content depends on.

The root of a chain is what the tokens do not say: the adapter's digest and the cache salt. Each full
block's key covers its parent's key and its own tokens, so equal keys mean equal history. An adapter that
holds only from some token on enters the chain at that token's block: the blocks before it are the base
model's. Adapter names never enter: a name can be given to other weights, a digest cannot. Knows no pool and
no sequence.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import sha256


def root_key(adapter: str | None, cache_salt: str) -> bytes:
    """Key that starts the chain. Fields are tagged and length-prefixed, so no two pairs collide."""
    return _key(b"noria.prefix.1", b"" if adapter is None else b"+" + adapter.encode(), cache_salt.encode())


def activated_key(parent: bytes, adapter: str, offset: int) -> bytes:
    """Key of what precedes a block in which the adapter holds from token `offset` on."""
    return _key(b"noria.activated.1", parent, adapter.encode(), offset.to_bytes(8, "big"))


def child_key(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Key of the block that follows `parent` in its chain and holds `token_ids`."""
    return sha256(parent + array("q", token_ids).tobytes()).digest()


def _key(*fields: bytes) -> bytes:
    return sha256(b"".join(len(field).to_bytes(8, "big") + field for field in fields)).digest()
