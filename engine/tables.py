"""Block tables of sequences: grown row by row, begun from a cached prefix, given back whole.

The only place where a sequence and the pool meet. A row of a table is one block of each KV group, for the
same BLOCK_SIZE tokens. Who owns what of a running sequence's tokens:

    [0, outside)             out of a group's window: its table still names blocks, which are others' now
    [0, found)               full blocks of a cached prefix, shared by reference, never written again;
                             blocks that match partly are copied, the copies are the sequence's own
    [found, num_computed)    its own; each full block is published once its step has succeeded
    [num_computed, end)      its own, writable: in no other table; but those of the row that num_computed
                             lies in may still be shared with a fork, and are copied before they are written
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle

from engine.block_need import rows_outside
from engine.blocks import BlockPool
from engine.config import BLOCK_SIZE, blocks_for
from engine.errors import IntegrityError
from engine.prefix_search import Prefix, find_prefix
from engine.records import BlockCopy
from engine.sequence import Sequence


class BlockTables:
    """Moves blocks between one pool and many sequences."""

    def __init__(self, pool: BlockPool, *, prefix_cache: bool) -> None:
        self.pool = pool
        self._prefix_cache = prefix_cache
        self._copies: list[BlockCopy] = []

    def find_prefix(self, seq: Sequence) -> Prefix:
        """What already holds the head of the sequence, leaving at least one token to compute.

        Nothing where more of it is saved in host memory.
        """
        prefix = find_prefix(seq, self.pool) if self._prefix_cache else Prefix()
        return Prefix() if prefix.num_tokens < seq.num_saved else prefix

    def saving(self, seq: Sequence, prefix: Prefix) -> int:
        """Free blocks that a sequence which begins with `prefix` never takes: those others hold anyway.

        Behind a window it will have blocks of its own in their stead.
        """
        lasting = [place for place in prefix.held if place % seq.need.groups not in seq.need.bounded]
        return sum(not self.pool.is_idle(prefix.table[place]) for place in lasting)

    def begin(self, seq: Sequence, prefix: Prefix) -> None:
        """Give a sequence without a table its cached prefix; partly matching blocks take free ones."""
        self.pool.share(prefix.table[place] for place in prefix.held)
        seq.table = list(prefix.table)
        seq.num_computed = prefix.num_tokens
        if prefix.sources:
            seq.table += self._copied(prefix.sources)

    def _copied(self, sources: tuple[int, ...]) -> list[int]:
        """Copies of blocks, one of each group; where nothing else is free, the blocks themselves."""
        # Held while they are read: what is handed out for one may not be the source of another.
        self.pool.share(sources)
        targets = [self._copy(block) if self.pool.num_free else block for block in sources]
        for block, target in zip(sources, targets, strict=True):
            if block == target:
                self.pool.withdraw(block)
            else:
                self.pool.release([block])
                self.pool.counters.prefix_copies += 1
        return targets

    def _copy(self, source: int) -> int:
        # Copies are made in order, before all else: a source may be handed out as soon as its copy is listed.
        (target,) = self.pool.allocate(1, [self.pool.group_of(source)])
        self._copies.append(BlockCopy(source, target))
        return target

    def copy_out(self, seq: Sequence, host: list[int]) -> None:
        """Copy what a sequence has computed to host blocks; its own are handed out only behind that copy."""
        self._copies += map(BlockCopy, seq.held_of(blocks_for(seq.num_computed)), host)

    def copy_in(self, seq: Sequence, num_tokens: int, host: list[int]) -> None:
        """Give a sequence without a table its `num_tokens` back from host blocks."""
        rows, groups = blocks_for(num_tokens), seq.need.groups
        places = seq.need.places(rows, num_tokens)
        blocks = self.pool.allocate(len(host), (place % groups for place in places))
        seq.table = [0] * (rows * groups)
        for place, block in zip(places, blocks, strict=True):
            seq.table[place] = block
        seq.num_computed = num_tokens
        self._copies += map(BlockCopy, host, blocks)

    def common_tokens(self, seq: Sequence, parent: Sequence) -> int:
        """Computed tokens of `parent` that a new sequence begins with, leaving what it has to compute itself.

        None of them where the parent has given back what a later token of the new one sees, and only those
        before the adapter holds in either where it holds from another position.
        """
        most = min(parent.num_computed, seq.most_cached)
        if seq.adapter_from != parent.adapter_from:
            most = min(most, seq.adapter_from, parent.adapter_from)
        pairs = enumerate(zip(seq.token_ids[:most], parent.token_ids, strict=False))
        common = next((place for place, (own, other) in pairs if own != other), most)
        gone = any(
            rows_outside(window, parent.num_computed) > rows_outside(window, common)
            for window in seq.need.windows
        )
        return 0 if gone else common

    def share(self, seq: Sequence, parent: Sequence, common: int) -> None:
        """Give a sequence without a table the blocks of its parent's first `common` tokens."""
        seq.table = parent.table[: blocks_for(common) * seq.need.groups]
        seq.num_computed = common
        self.pool.share(seq.held)

    def take_copies(self) -> tuple[BlockCopy, ...]:
        """Copies that the next step has to make, in order."""
        copies, self._copies = tuple(self._copies), []
        return copies

    def distrust(self, copies: Iterable[BlockCopy]) -> set[int]:
        """These copies may not have been made: nobody finds their targets in the pool, which are returned."""
        targets = {copy.target for copy in copies if copy.target < self.pool.num_blocks}
        self.pool.distrust(targets)
        return targets

    def grow(self, seq: Sequence, count: int) -> bool:
        """Make room for the next `count` tokens; False, and nothing done, if blocks run out."""
        groups = seq.need.groups
        lacking = max(0, blocks_for(seq.num_computed + count) * groups - len(seq.table))
        shared = [place for place in seq.open_places if not self.pool.is_writable(seq.table[place])]
        if not lacking and not shared:
            return True
        if lacking + len(shared) > self.pool.num_free:
            return False
        for place in shared:
            self._own(seq, place)
        seq.table += self.pool.allocate(lacking, cycle(range(groups)))
        seq.most_blocks = max(seq.most_blocks, seq.need.held(seq.rows, seq.num_computed))
        return True

    def _own(self, seq: Sequence, place: int) -> None:
        """Replace a shared block by a copy."""
        shared = seq.table[place]
        seq.table[place] = self._copy(shared)
        self.pool.release([shared])
        self.pool.counters.copies_on_write += 1

    def advance(self, seq: Sequence, count: int) -> None:
        """`count` more tokens are computed; blocks that became full can now be found by others."""
        before = seq.num_computed
        seq.num_computed += count
        if self._prefix_cache:
            for row in range(before // BLOCK_SIZE, seq.num_computed // BLOCK_SIZE):
                self._publish(seq, row)
        if seq.need.bounded:
            self._slide(seq, before)

    def _publish(self, seq: Sequence, row: int) -> None:
        content, groups = seq.content(row), seq.need.groups
        for block in seq.table[row * groups : (row + 1) * groups]:
            self.pool.publish(block, content)

    def _slide(self, seq: Sequence, before: int) -> None:
        """Give back the blocks that have left their window since `before` tokens were computed."""
        for group, window in enumerate(seq.need.windows):
            first, end = (
                rows_outside(window, computed) * seq.need.groups + group
                for computed in (before, seq.num_computed)
            )
            gone = seq.table[first : end : seq.need.groups]
            self.pool.release(gone)
            self.pool.counters.window_frees += len(gone)

    def free(self, seq: Sequence, *, forget: bool = False) -> None:
        """Take the whole table back; see BlockPool.release for `forget`.

        What its last row holds, though it be less than a block, can be found from now on.
        """
        if self._prefix_cache and not forget and seq.num_computed % BLOCK_SIZE:
            self._publish(seq, seq.num_computed // BLOCK_SIZE)
        self.pool.release(seq.held, forget=forget)
        seq.table = []
        seq.num_computed = 0

    def check_integrity(self, running: Iterable[Sequence]) -> None:
        """Raise IntegrityError unless pool and tables agree and nobody writes what another one reads."""
        running = list(running)
        self.pool.check_integrity(seq.held for seq in running)
        for seq in running:
            groups, computed = seq.need.groups, blocks_for(seq.num_computed)
            if len(seq.table) % groups or seq.rows < computed:
                raise IntegrityError(f"sequence {seq.seq_id}: table is shorter than its computed tokens")
            for place in seq.need.places(seq.rows, seq.num_computed):
                if self.pool.group_of(seq.table[place]) != place % groups:
                    raise IntegrityError(f"sequence {seq.seq_id}: a block is in another group's place")
            for block in seq.table[computed * groups :]:
                if not self.pool.is_writable(block):
                    raise IntegrityError(f"sequence {seq.seq_id}: writable block {block} is shared")
        _check_shared_contents(running)


def _check_shared_contents(running: Iterable[Sequence]) -> None:
    """Raise IntegrityError where sequences that share a block differ in what they computed up to it."""
    histories: dict[int, tuple[bytes, list[tuple[int, str | None]]]] = {}
    for seq in running:
        for place in seq.need.places(blocks_for(seq.num_computed), seq.num_computed):
            block, row = seq.table[place], place // seq.need.groups
            here = seq.block_key(row - 1), _computed(seq, row)
            where, tokens = histories.setdefault(block, here)
            length = min(len(tokens), len(here[1]))
            if where != here[0] or tokens[:length] != here[1][:length]:
                raise IntegrityError(f"sequence {seq.seq_id}: block {block} holds other tokens than its own")


def _computed(seq: Sequence, row: int) -> list[tuple[int, str | None]]:
    """Tokens that a row of its table holds, each with the adapter it was computed with."""
    end = min(seq.num_computed, (row + 1) * BLOCK_SIZE)
    return [
        (seq.token_ids[at], seq.request.adapter if at >= seq.adapter_from else None)
        for at in range(row * BLOCK_SIZE, end)
    ]
