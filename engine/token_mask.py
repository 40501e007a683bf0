"""Sets of tokens as bits over the vocabulary: bit i % 8, from the lowest, of byte i // 8 is token i's.

Whole 32-bit words, as grammars and the native backend have them. Knows no logits.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

WORD_BYTES = 4

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]


def mask_bytes(vocab_size: int) -> int:
    """Bytes of a mask over so many tokens."""
    return -(-vocab_size // (8 * WORD_BYTES)) * WORD_BYTES


def mask_of(token_ids: Iterable[int], vocab_size: int) -> bytes:
    """The set of `token_ids`, all of them below vocab_size."""
    mask = bytearray(mask_bytes(vocab_size))
    for token_id in token_ids:
        mask[token_id >> 3] |= 1 << (token_id & 7)
    return bytes(mask)


def holds(mask: bytes, token_id: int) -> bool:
    """Whether a token of the vocabulary is in the set."""
    return bool(mask[token_id >> 3] >> (token_id & 7) & 1)


def tokens_of(mask: bytes, vocab_size: int) -> Bools:
    """Whether each token of the vocabulary is in the set; bool [vocab_size]."""
    bits = np.unpackbits(np.frombuffer(mask, np.uint8), count=vocab_size, bitorder="little")
    return bits.view(np.bool_)
