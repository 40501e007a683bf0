"""Block tables of sequences: grown block by block, begun from a cached prefix, given back whole.

The only place where a sequence and the pool meet. Who owns what of a running sequence's tokens:

    [0, dropped blocks)      out of every layer's window: its table still names blocks, which are others' now
    [0, found)               full blocks of a cached prefix, shared by reference, never written again;
                             a block that matches partly is copied, the copy is the sequence's own
    [found, num_computed)    its own; each full block is published once its step has succeeded
    [num_computed, end)      its own, writable: in no other table; but the block that num_computed lies in
                             may still be shared with a fork, and is copied before it is written
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.blocks import BlockPool
from engine.config import BLOCK_SIZE, blocks_for
from engine.errors import IntegrityError
from engine.records import BlockCopy
from engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Prefix:
    """The cached head of a sequence: full blocks, then `common` tokens at the beginning of `source`."""

    blocks: tuple[int, ...] = ()
    source: int = -1
    common: int = 0

    @property
    def num_tokens(self) -> int:
        return len(self.blocks) * BLOCK_SIZE + self.common


class BlockTables:
    """Moves blocks between one pool and many sequences.

    window: positions that a token sees, its own included, in the layer that sees most; None for all.
    """

    def __init__(self, pool: BlockPool, *, prefix_cache: bool, window: int | None = None) -> None:
        self.pool = pool
        self._window = window
        self._prefix_cache = prefix_cache
        self._copies: list[BlockCopy] = []

    def find_prefix(self, seq: Sequence) -> Prefix:
        """What already holds the head of the sequence, leaving at least one token to compute."""
        if not self._prefix_cache:
            return Prefix()
        most, found = len(seq.token_ids) - 1, []
        for index in range(most // BLOCK_SIZE):
            block = self.pool.find(seq.block_key(index))
            if block is None:
                break
            found.append(block)
        start = len(found) * BLOCK_SIZE
        rest = seq.token_ids[start : min(start + BLOCK_SIZE, most)]
        source, common = self.pool.find_longest(seq.block_key(len(found) - 1), rest) or (-1, 0)
        return Prefix(tuple(found), source, common)

    def saving(self, prefix: Prefix) -> int:
        """Free blocks that a sequence which begins with `prefix` does not take: those others hold anyway."""
        kept = prefix.blocks[self._outside(prefix.num_tokens) :]
        return sum(not self.pool.is_idle(block) for block in kept)

    def begin(self, seq: Sequence, prefix: Prefix) -> None:
        """Give a sequence without a table its cached prefix; a partly matching block takes a free one."""
        self.pool.share(prefix.blocks)
        seq.table = list(prefix.blocks)
        seq.num_computed = prefix.num_tokens
        if prefix.common:
            self.pool.touch(prefix.source)
            seq.table += self._copy(prefix.source)
            self.pool.counters.prefix_copies += 1
        self._slide(seq)

    def _outside(self, num_computed: int) -> int:
        """Blocks at the head of a table that no token from `num_computed` on sees."""
        return 0 if self._window is None else max(0, num_computed - self._window + 1) // BLOCK_SIZE

    def _slide(self, seq: Sequence) -> None:
        """Give back the blocks that have left the window."""
        outside = self._outside(seq.num_computed)
        if outside > seq.num_dropped:
            self.pool.release(seq.table[seq.num_dropped : outside])
            self.pool.counters.window_frees += outside - seq.num_dropped
            seq.num_dropped = outside

    def _copy(self, source: int) -> list[int]:
        # The source may be handed out at once, even as the target: copies are made in order, before all else.
        target = self.pool.allocate(1)
        self._copies.append(BlockCopy(source, target[0]))
        return target

    def copy_out(self, seq: Sequence, host: list[int]) -> None:
        """Copy what a sequence has computed to host blocks; its own are handed out only behind that copy."""
        self._copies += map(BlockCopy, seq.table, host)

    def copy_in(self, seq: Sequence, num_tokens: int, host: list[int]) -> None:
        """Give a sequence without a table its `num_tokens` back from host blocks."""
        seq.table = self.pool.allocate(len(host))
        seq.num_computed = num_tokens
        self._copies += map(BlockCopy, host, seq.table)

    def common_tokens(self, seq: Sequence, parent: Sequence) -> int:
        """Computed tokens of `parent` that a new sequence begins with, leaving at least one to compute."""
        most = min(parent.num_computed, len(seq.token_ids) - 1)
        pairs = enumerate(zip(seq.token_ids[:most], parent.token_ids, strict=False))
        common = next((place for place, (own, other) in pairs if own != other), most)
        return common if parent.num_dropped <= self._outside(common) else 0

    def share(self, seq: Sequence, parent: Sequence, common: int) -> None:
        """Give a sequence without a table the blocks of its parent's first `common` tokens."""
        seq.table = parent.table[: blocks_for(common)]
        seq.num_computed, seq.num_dropped = common, parent.num_dropped
        self.pool.share(seq.held)

    def take_copies(self) -> tuple[BlockCopy, ...]:
        """Copies that the next step has to make, in order."""
        copies, self._copies = tuple(self._copies), []
        return copies

    def grow(self, seq: Sequence, count: int) -> bool:
        """Make room for the next `count` tokens; False, and nothing done, if blocks run out."""
        lacking = max(0, blocks_for(seq.num_computed + count) - len(seq.table))
        shared = not self.pool.is_writable(seq.open_block)
        if not lacking and not shared:
            return True
        if lacking + shared > self.pool.num_free:
            return False
        if shared:
            self._own_open_block(seq)
        seq.table += self.pool.allocate(lacking)
        seq.most_blocks = max(seq.most_blocks, len(seq.table) - seq.num_dropped)
        return True

    def _own_open_block(self, seq: Sequence) -> None:
        index = seq.num_computed // BLOCK_SIZE
        old = seq.table[index]
        seq.table[index : index + 1] = self._copy(old)
        self.pool.release([old])
        self.pool.counters.copies_on_write += 1

    def advance(self, seq: Sequence, count: int) -> None:
        """`count` more tokens are computed; blocks that became full can now be found by others."""
        full_before = seq.num_computed // BLOCK_SIZE
        seq.num_computed += count
        if self._prefix_cache:
            for index in range(full_before, seq.num_computed // BLOCK_SIZE):
                self.pool.publish(seq.table[index], seq.content(index))
        if self._window is not None:
            self._slide(seq)

    def free(self, seq: Sequence, *, forget: bool = False) -> None:
        """Take the whole table back; see BlockPool.release for `forget`.

        What its last block holds, though it be less than a block, can be found from now on.
        """
        if self._prefix_cache and not forget and seq.num_computed % BLOCK_SIZE:
            last = seq.num_computed // BLOCK_SIZE
            self.pool.publish(seq.table[last], seq.content(last))
        self.pool.release(seq.held, forget=forget)
        seq.table = []
        seq.num_computed = seq.num_dropped = 0

    def check_integrity(self, running: Iterable[Sequence]) -> None:
        """Raise IntegrityError unless pool and tables agree and nobody writes what another one reads."""
        running = list(running)
        self.pool.check_integrity(seq.held for seq in running)
        for seq in running:
            if len(seq.table) < blocks_for(seq.num_computed):
                raise IntegrityError(f"sequence {seq.seq_id}: table is shorter than its computed tokens")
            for block in seq.table[blocks_for(seq.num_computed) :]:
                if not self.pool.is_writable(block):
                    raise IntegrityError(f"sequence {seq.seq_id}: writable block {block} is shared")
        _check_shared_contents(running)


def _check_shared_contents(running: Iterable[Sequence]) -> None:
    """Raise IntegrityError where sequences that share a block differ in the tokens they computed up to it."""
    histories: dict[int, tuple[object, list[int]]] = {}
    for seq in running:
        origin = seq.block_key(-1)
        for index in range(seq.num_dropped, blocks_for(seq.num_computed)):
            block = seq.table[index]
            end = min(seq.num_computed, (index + 1) * BLOCK_SIZE)
            here = (origin, index), seq.token_ids[index * BLOCK_SIZE : end]
            place, tokens = histories.setdefault(block, here)
            length = min(len(tokens), len(here[1]))
            if place != here[0] or tokens[:length] != here[1][:length]:
                raise IntegrityError(f"sequence {seq.seq_id}: block {block} holds other tokens than its own")
