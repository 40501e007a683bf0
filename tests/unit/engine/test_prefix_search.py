"""How far cached blocks of several groups reach together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.block_need import BlockNeed, rows_outside
from engine.blocks import BlockPool
from engine.kv_groups import Window
from engine.prefix_search import find_prefix
from engine.records import Request, SamplingParams
from engine.sequence import Sequence
from engine.tables import BlockTables


def _sequence(windows: tuple[Window, ...], prompt_len: int = 200, seq_id: int = 0) -> Sequence:
    request = Request(str(seq_id), tuple(range(prompt_len)), SamplingParams(max_tokens=8))
    return Sequence(seq_id, request, 8, frozenset(), 0, 0, 0.0, BlockNeed(windows, step_tokens=64))


def test_a_window_needs_the_last_blocks_of_the_head_only() -> None:
    windows = (None, 20)
    pool = BlockPool(40, num_groups=2)
    tables = BlockTables(pool, prefix_cache=True)
    first = _sequence(windows)
    tables.grow(first, 100)
    tables.advance(first, 100)
    assert (len(first.held), pool.used) == (7 + 2, [7, 2])
    tables.free(first)
    second = _sequence(windows, seq_id=1)
    prefix = tables.find_prefix(second)
    assert (prefix.num_tokens, len(prefix.held)) == (100, 6 + 1)
    tables.begin(second, prefix)
    assert (second.num_computed, len(second.held), pool.counters.prefix_copies) == (100, 9, 2)
    tables.check_integrity([second])


def test_a_head_ends_before_a_block_that_a_window_group_lacks() -> None:
    windows = (None, 40)
    pool = BlockPool(40, num_groups=2)
    tables = BlockTables(pool, prefix_cache=True)
    first = _sequence(windows)
    tables.grow(first, 96)
    tables.advance(first, 96)
    pool.withdraw(first.table[2 * 5 + 1])
    second = _sequence(windows, seq_id=1)
    assert find_prefix(second, pool).num_tokens == 5 * 16
    pool.withdraw(first.table[0])
    assert find_prefix(second, pool).num_tokens == 0


@given(
    windows=st.lists(st.sampled_from([None, 1, 20, 40]), min_size=1, max_size=3).map(tuple),
    missing=st.sets(st.tuples(st.integers(0, 11), st.integers(0, 2)), max_size=6),
)
def test_the_longest_head_that_every_group_can_serve_is_found(
    windows: tuple[Window, ...], missing: set[tuple[int, int]]
) -> None:
    pool = BlockPool(60, num_groups=len(windows))
    seq = _sequence(windows)
    lost = {(row, group) for row, group in missing if group < len(windows)}
    seq.num_computed = 192
    for row in range(12):
        for group in range(len(windows)):
            (block,) = pool.allocate(1, [group])
            if (row, group) not in lost:
                pool.publish(block, seq.content(row))

    def serves(rows: int) -> bool:
        return not any(
            (row, group) in lost
            for group, window in enumerate(windows)
            for row in range(rows_outside(window, rows * 16), rows)
        )

    assert find_prefix(seq, pool).num_tokens // 16 == max(rows for rows in range(13) if serves(rows))
