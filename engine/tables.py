"""Block tables of sequences: grown block by block, begun from a cached prefix, given back whole.

The only place where a sequence and the pool meet. Who owns what of a running sequence's tokens:

    [0, found)               blocks of a cached prefix, shared by reference, never written again
    [found, num_computed)    its own; each full block is published once its step has succeeded
    [num_computed, end)      its own, writable: in no other table
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.blocks import BlockPool
from engine.config import BLOCK_SIZE, blocks_for
from engine.errors import IntegrityError
from engine.sequence import Sequence


class BlockTables:
    """Moves blocks between one pool and many sequences."""

    def __init__(self, pool: BlockPool, *, prefix_cache: bool) -> None:
        self.pool = pool
        self._prefix_cache = prefix_cache

    def find_prefix(self, seq: Sequence) -> list[int]:
        """Blocks that already hold the head of the sequence, leaving at least one token to compute."""
        found: list[int] = []
        if not self._prefix_cache:
            return found
        for index in range((len(seq.token_ids) - 1) // BLOCK_SIZE):
            block = self.pool.find(seq.block_key(index))
            if block is None:
                break
            found.append(block)
        return found

    def saving(self, prefix: list[int]) -> int:
        """Free blocks that a sequence which begins with `prefix` does not take: those others hold anyway."""
        return sum(not self.pool.is_idle(block) for block in prefix)

    def begin(self, seq: Sequence, prefix: list[int]) -> None:
        """Give a sequence without a table its cached prefix."""
        self.pool.share(prefix)
        seq.table = prefix
        seq.num_computed = len(prefix) * BLOCK_SIZE

    def grow(self, seq: Sequence, count: int) -> bool:
        """Extend the table for the next `count` tokens; False, and nothing done, if blocks run out."""
        lacking = blocks_for(seq.num_computed + count) - len(seq.table)
        if lacking <= 0:
            return True
        if lacking > self.pool.num_free:
            return False
        seq.table.extend(self.pool.allocate(lacking))
        seq.most_blocks = max(seq.most_blocks, len(seq.table))
        return True

    def advance(self, seq: Sequence, count: int) -> None:
        """`count` more tokens are computed; blocks that became full can now be found by others."""
        full_before = seq.num_computed // BLOCK_SIZE
        seq.num_computed += count
        if self._prefix_cache:
            for index in range(full_before, seq.num_computed // BLOCK_SIZE):
                self.pool.publish(seq.table[index], seq.block_key(index))

    def free(self, seq: Sequence, *, forget: bool = False) -> None:
        """Take the whole table back; see BlockPool.release for `forget`."""
        self.pool.release(seq.table, forget=forget)
        seq.table = []
        seq.num_computed = 0

    def check_integrity(self, running: Iterable[Sequence]) -> None:
        """Raise IntegrityError unless pool and tables agree and no writable block is shared."""
        running = list(running)
        self.pool.check_integrity(seq.table for seq in running)
        for seq in running:
            if len(seq.table) < blocks_for(seq.num_computed):
                raise IntegrityError(f"sequence {seq.seq_id}: table is shorter than its computed tokens")
            for block in seq.table[seq.num_computed // BLOCK_SIZE :]:
                if self.pool.references(block) != 1:
                    raise IntegrityError(f"sequence {seq.seq_id}: writable block {block} is shared")
