"""Which blocks hold which content: whole contents by their key, partly matching ones by their tokens.

A content is a key, the key of what precedes it, and its tokens, BLOCK_SIZE of them or, at the end of a
finished sequence, fewer. The contents that follow one key are kept in the order of their tokens, where
the longest common beginning with any tokens stands next to the place those tokens would have. Knows no
references and no order of eviction.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from engine.errors import IntegrityError


@dataclass(frozen=True, slots=True)
class Content:
    """What a block holds: `token_ids` after all that `parent` names; `key` names both together."""

    key: bytes
    parent: bytes
    token_ids: tuple[int, ...]


_tokens = itemgetter(0)


class PrefixIndex:
    """One block for each content."""

    def __init__(self) -> None:
        self._blocks: dict[bytes, int] = {}
        self._followers: dict[bytes, list[tuple[tuple[int, ...], bytes]]] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._blocks)

    def find(self, key: bytes) -> int | None:
        """The block that holds the content named by `key`, if any does."""
        return self._blocks.get(key)

    def find_longest(self, parent: bytes, token_ids: Sequence[int]) -> tuple[bytes, int] | None:
        """Key of the content after `parent` that begins like `token_ids`; how many tokens are the same."""
        followers = self._followers.get(parent)
        if not followers or not token_ids:
            return None
        place = bisect_left(followers, tuple(token_ids), key=_tokens)
        near = followers[max(0, place - 1) : place + 1]
        count, key = max((_common(tokens, token_ids), key) for tokens, key in near)
        return (key, count) if count else None

    def add(self, content: Content, block: int) -> None:
        """`block` holds `content`, which no other block of the index does."""
        self._blocks[content.key] = block
        insort(self._followers.setdefault(content.parent, []), (content.token_ids, content.key))

    def remove(self, content: Content) -> None:
        """No block holds `content` any more."""
        del self._blocks[content.key]
        followers = self._followers[content.parent]
        del followers[bisect_left(followers, content.token_ids, key=_tokens)]
        if not followers:
            del self._followers[content.parent]

    def check_integrity(self) -> None:
        """Raise IntegrityError unless both views name the same blocks."""
        followers = [key for each in self._followers.values() for _, key in each]
        if sorted(followers) != sorted(self._blocks):
            raise IntegrityError("blocks found by key and blocks found by tokens differ")


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common beginning."""
    pairs = zip(first, second, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
