"""The block pool: states, reference counts, eviction, and its integrity through random histories."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.blocks import BlockPool
from engine.errors import IntegrityError
from engine.prefix_index import Content


def _content(key: bytes) -> Content:
    return Content(key, b"", tuple(key))


def test_blocks_are_handed_out_once() -> None:
    pool = BlockPool(4)
    blocks = pool.allocate(4)
    assert sorted(blocks) == [0, 1, 2, 3]
    assert pool.num_free == 0
    with pytest.raises(IntegrityError, match="1 blocks asked for; 0 are free"):
        pool.allocate(1)


def test_a_published_block_is_found_while_used_and_while_idle() -> None:
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.publish(block, _content(b"k"))
    assert pool.find(b"k") == block
    pool.release([block])
    assert (pool.find(b"k"), pool.num_free, pool.num_idle) == (block, 2, 1)
    pool.share([block])
    assert (pool.references(block), pool.num_free, pool.num_idle) == (1, 1, 0)


def test_doubtful_blocks_are_found_no_more_and_stay_with_who_uses_them() -> None:
    pool = BlockPool(2)
    used, idle = pool.allocate(2)
    pool.publish(used, _content(b"used"))
    pool.publish(idle, _content(b"idle"))
    pool.release([idle])
    pool.distrust([used, idle])
    pool.check_integrity([[used]])
    assert (pool.find(b"used"), pool.find(b"idle")) == (None, None)
    assert (pool.references(used), pool.num_free, pool.num_idle) == (1, 1, 0)


def test_a_block_is_free_only_after_its_last_user() -> None:
    pool = BlockPool(1)
    (block,) = pool.allocate(1)
    pool.publish(block, _content(b"k"))
    pool.share([block])
    pool.release([block])
    assert pool.num_free == 0
    pool.release([block])
    assert pool.num_free == 1


def test_cached_blocks_go_last_and_the_least_recently_used_of_them_first() -> None:
    pool = BlockPool(3)
    a, b, _ = pool.allocate(3)
    pool.publish(a, _content(b"a"))
    pool.publish(b, _content(b"b"))
    pool.release([0, 1, 2])
    pool.share([b])
    pool.release([b])
    assert pool.allocate(1) == [2]
    assert (pool.find(b"a"), pool.find(b"b")) == (a, b)
    assert pool.allocate(1) == [a]
    assert (pool.find(b"a"), pool.find(b"b")) == (None, b)


def test_a_chain_is_evicted_from_its_tail() -> None:
    pool = BlockPool(3)
    table = pool.allocate(3)
    for block, key in zip(table, (b"1", b"2", b"3"), strict=True):
        pool.publish(block, _content(key))
    pool.release(table)
    pool.allocate(2)
    assert [pool.find(key) for key in (b"1", b"2", b"3")] == [table[0], None, None]


def test_the_first_holder_of_a_content_stays_the_one_that_is_found() -> None:
    pool = BlockPool(2)
    first, second = pool.allocate(2)
    pool.publish(first, _content(b"k"))
    pool.publish(second, _content(b"k"))
    pool.release([second])
    assert (pool.find(b"k"), pool.num_idle) == (first, 0)


def test_doubtful_content_is_forgotten_unless_another_sequence_uses_it() -> None:
    pool = BlockPool(2)
    own, common = pool.allocate(2)
    pool.publish(own, _content(b"own"))
    pool.publish(common, _content(b"common"))
    pool.share([common])
    pool.release([common, own], forget=True)
    assert (pool.find(b"own"), pool.find(b"common")) == (None, common)
    pool.check_integrity([[common]])


def test_a_reused_block_outlives_later_ones() -> None:
    pool = BlockPool(8)
    table = pool.allocate(8)
    for block in table:
        pool.publish(block, _content(bytes([block])))
    pool.release([table[0]])
    pool.share([table[0]])
    pool.release([table[0]])  # a reuse counts as two later uses here: a quarter of 8
    for block in table[1:]:
        pool.release([block])
    given_up = [pool.allocate(1)[0] for _ in range(8)]
    assert given_up.index(table[0]) in (1, 2)
    assert pool.counters.evictions == 8


def test_a_block_is_found_only_in_its_group() -> None:
    pool = BlockPool(3, num_groups=2)
    first, second = pool.allocate(2, [0, 1])
    pool.publish(first, _content(b"1"))
    assert (pool.find(b"1", 0), pool.find(b"1", 1)) == (first, None)
    assert pool.find_longest(b"", (1,)) == ((), 0)
    pool.publish(second, _content(b"1"))
    assert pool.find_longest(b"", _content(b"1").token_ids) == ((first, second), 1)
    assert (pool.used, [pool.group_of(block) for block in (first, second)]) == ([1, 1], [0, 1])
    pool.release([first, second])
    assert pool.used == [0, 0]
    pool.allocate(2, [1, 1])
    assert (pool.used, pool.find(b"1", 1)) == ([0, 2], None)


def test_a_block_that_is_written_again_is_found_no_more() -> None:
    pool = BlockPool(1)
    (block,) = pool.allocate(1)
    pool.publish(block, _content(b"1"))
    pool.withdraw(block)
    assert (pool.find(b"1"), pool.is_writable(block)) == (None, True)
    pool.check_integrity([[block]])


def test_misuse_is_noticed() -> None:
    pool = BlockPool(2)
    with pytest.raises(IntegrityError, match="released but nobody uses it"):
        pool.release([0])
    with pytest.raises(IntegrityError, match="published but nobody uses it"):
        pool.publish(0, _content(b"k"))
    (block,) = pool.allocate(1)
    with pytest.raises(IntegrityError, match="counts 1 references; 0 tables name it"):
        pool.check_integrity([])
    with pytest.raises(IntegrityError, match="counts 1 references; 2 tables name it"):
        pool.check_integrity([[block], [block]])


@settings(max_examples=200)
@given(
    size=st.integers(1, 12),
    history=st.lists(
        st.tuples(st.sampled_from(["begin", "grow", "publish", "release", "forget"]), st.integers(0, 99)),
        max_size=60,
    ),
)
def test_integrity_through_random_histories(size: int, history: list[tuple[str, int]]) -> None:
    pool = BlockPool(size)
    tables: list[list[int]] = []
    for action, number in history:
        key = bytes([number % 8])
        found = pool.find(key)
        if action == "begin":
            shared = [] if found is None else [found]
            pool.share(shared)
            tables.append(shared)
        elif tables:
            table = tables[number % len(tables)]
            if action == "grow" and pool.num_free:
                table.extend(pool.allocate(1))
            elif action == "publish" and table:
                pool.publish(table[-1], _content(key))
            elif action in ("release", "forget"):
                tables.remove(table)
                pool.release(table, forget=action == "forget")
        pool.check_integrity(tables)
    for table in tables:
        pool.release(table)
    pool.check_integrity([])
    assert pool.num_free == size
