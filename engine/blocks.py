"""The pool of KV block ids: reference counts, free blocks, and full blocks kept to be found again.

Blocks are all of one size, and belong to the KV group they were last handed out for.

A block is in exactly one of three states:

    used     referenced by one or more block tables    freed by the tables' owner through release()
    idle     no reference, but a known content         freed by allocate(), in the order of engine.idle,
                                                       only when no empty block is left
    empty    no reference and no known content

Knows no sequences and no tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

from engine.errors import IntegrityError
from engine.idle import IdleBlocks
from engine.prefix_index import Content, PrefixIndex


@dataclass(slots=True)
class BlockCounters:
    """Counted since the start.

    evictions: cached blocks given up for new content. copies_on_write: shared blocks copied for one who
    writes. prefix_copies: partly matching blocks copied. window_frees: blocks that left a window.
    """

    evictions: int = 0
    copies_on_write: int = 0
    prefix_copies: int = 0
    window_frees: int = 0


class BlockPool:
    """Hands out block ids 0 .. num_blocks - 1.

    counters: outlive the pool where its maker keeps them. used: blocks of each group that are referenced.
    """

    def __init__(
        self, num_blocks: int, counters: BlockCounters | None = None, *, num_groups: int = 1
    ) -> None:
        self.num_blocks = num_blocks
        self.counters = BlockCounters() if counters is None else counters
        self.used = [0] * num_groups
        self._groups = [0] * num_blocks
        self._refs = [0] * num_blocks
        self._reuses = [0] * num_blocks
        self._contents: list[Content | None] = [None] * num_blocks
        self._indexes = [PrefixIndex() for _ in range(num_groups)]
        self._empty = list(reversed(range(num_blocks)))
        self._idle = IdleBlocks(num_blocks)

    @property
    def num_free(self) -> int:
        """Blocks allocate() can hand out: empty and idle ones."""
        return len(self._empty) + len(self._idle)

    @property
    def num_idle(self) -> int:
        """Free blocks whose content may still be found."""
        return len(self._idle)

    def is_idle(self, block: int) -> bool:
        return block in self._idle

    def is_writable(self, block: int) -> bool:
        """Whether whoever holds `block` may write it: it is in no other table, and not to be found."""
        return self._refs[block] == 1 and self._contents[block] is None

    def group_of(self, block: int) -> int:
        """The KV group of a block that is not empty."""
        return self._groups[block]

    def references(self, block: int) -> int:
        return self._refs[block]

    def allocate(self, count: int, groups: Iterable[int] = repeat(0)) -> list[int]:
        """`count` blocks of undefined content for those groups in turn, one reference each.

        The caller has checked num_free.
        """
        if count > self.num_free:
            raise IntegrityError(f"{count} blocks asked for; {self.num_free} are free")
        blocks = [self._empty.pop() if self._empty else self._evict() for _ in range(count)]
        for block, group in zip(blocks, groups, strict=False):
            self._refs[block] = 1
            self._groups[block] = group
            self.used[group] += 1
        return blocks

    def find(self, key: bytes, group: int = 0) -> int | None:
        """The block of `group` that holds the content named by `key`, if any does."""
        return self._indexes[group].find(key)

    def find_longest(self, parent: bytes, token_ids: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """Blocks of one content after `parent`, one of each group, and how far it is like `token_ids`.

        No blocks and 0 where the content nearest in the first group is missing in another.
        """
        key, common = self._indexes[0].find_longest(parent, token_ids) or (b"", 0)
        found = tuple(block for index in self._indexes if (block := index.find(key)) is not None)
        return (found, common) if len(found) == len(self._indexes) else ((), 0)

    def share(self, blocks: Iterable[int]) -> None:
        """Add one reference to each block; idle ones become used."""
        for block in blocks:
            if self._refs[block] == 0:
                self._idle.remove(block)
                self.used[self._groups[block]] += 1
            self._refs[block] += 1
            self._reuses[block] += 1

    def publish(self, block: int, content: Content) -> None:
        """Let a used block be found by its content; a no-op where another block already is."""
        if self._refs[block] == 0:
            raise IntegrityError(f"block {block} is published but nobody uses it")
        index = self._indexes[self._groups[block]]
        if index.find(content.key) is None and self._contents[block] is None:
            index.add(content, block)
            self._contents[block] = content

    def withdraw(self, block: int) -> None:
        """Let a block that one table holds be found no more: it is about to be written."""
        self._forget(block)

    def distrust(self, blocks: Iterable[int]) -> None:
        """Let blocks be found no more, whose content is doubtful; those that nobody uses become empty."""
        for block in blocks:
            if block in self._idle:
                self._idle.remove(block)
                self._empty.append(block)
            self._forget(block)

    def release(self, table: Sequence[int], *, forget: bool = False) -> None:
        """Drop one reference to each block of a table.

        forget: content is doubtful; blocks that nobody else uses become empty instead of idle.
        """
        # The tail first: a chain is evicted from its end, so that its head stays findable.
        for block in reversed(table):
            if self._refs[block] == 0:
                raise IntegrityError(f"block {block} is released but nobody uses it")
            self._refs[block] -= 1
            if self._refs[block]:
                continue
            self.used[self._groups[block]] -= 1
            if forget:
                self._forget(block)
            if self._contents[block] is None:
                self._empty.append(block)
            else:
                self._idle.add(block, self._reuses[block])

    def _evict(self) -> int:
        block = self._idle.take()
        self._forget(block)
        self.counters.evictions += 1
        return block

    def _forget(self, block: int) -> None:
        content = self._contents[block]
        self._reuses[block] = 0
        if content is not None:
            self._indexes[self._groups[block]].remove(content)
            self._contents[block] = None

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise IntegrityError unless counts, states and keys agree with the tables of all sequences."""
        named = Counter(block for table in tables for block in table)
        empty = set(self._empty)
        if len(empty) != len(self._empty):
            raise IntegrityError("a block is twice in the empty list")
        for block, references in enumerate(self._refs):
            content = self._contents[block]
            if references != named[block]:
                raise IntegrityError(
                    f"block {block} counts {references} references; {named[block]} tables name it"
                )
            states = (references > 0) + (block in empty) + (block in self._idle)
            if states != 1:
                raise IntegrityError(f"block {block} is in {states} states; exactly 1 is allowed")
            if (block in empty and content is not None) or (block in self._idle and content is None):
                raise IntegrityError(f"block {block} is empty with a key, or idle without one")
            if content is not None and self.find(content.key, self._groups[block]) != block:
                raise IntegrityError(f"block {block} has a key that does not lead to it")
        if sum(map(len, self._indexes)) != sum(content is not None for content in self._contents):
            raise IntegrityError("a key leads to a block that does not carry it")
        if self.used != self._count_used():
            raise IntegrityError(f"{self.used} blocks of the groups count as used; {self._count_used()} are")
        for index in self._indexes:
            index.check_integrity()

    def _count_used(self) -> list[int]:
        groups = Counter(group for group, refs in zip(self._groups, self._refs, strict=True) if refs)
        return [groups[group] for group in range(len(self.used))]
