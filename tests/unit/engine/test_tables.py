"""Block tables: growth, prefixes, publication, return."""

import pytest

from engine.blocks import BlockPool
from engine.errors import IntegrityError
from engine.prefix_search import Prefix
from engine.records import BlockCopy, Request, SamplingParams
from engine.sequence import Sequence
from engine.tables import BlockTables


def _sequence(prompt_len: int, seq_id: int = 0) -> Sequence:
    request = Request(str(seq_id), tuple(range(prompt_len)), SamplingParams(max_tokens=32))
    return Sequence(seq_id, request, 32, frozenset(), 0, 0, 0.0)


def _computed(tables: BlockTables, prompt_len: int) -> Sequence:
    seq = _sequence(prompt_len)
    assert tables.grow(seq, prompt_len)
    tables.advance(seq, prompt_len)
    return seq


def test_a_prompt_of_273_tokens_takes_18_blocks() -> None:
    tables = BlockTables(BlockPool(40), prefix_cache=True)
    seq = _sequence(273)
    assert tables.grow(seq, 256)
    assert len(seq.table) == 16
    tables.advance(seq, 256)
    assert tables.grow(seq, 17)
    assert len(seq.table) == 18
    tables.advance(seq, 17)
    tables.grow(seq, 15)
    assert len(seq.table) == 18
    tables.advance(seq, 15)
    tables.grow(seq, 1)
    assert len(seq.table) == 19


def test_growth_that_does_not_fit_changes_nothing() -> None:
    pool = BlockPool(2)
    tables = BlockTables(pool, prefix_cache=True)
    seq = _sequence(48)
    assert not tables.grow(seq, 48)
    assert (seq.table, pool.num_free) == ([], 2)


@pytest.mark.parametrize(("prompt_len", "found"), [(15, 0), (16, 0), (17, 1), (32, 1), (33, 2), (40, 2)])
def test_full_blocks_are_found_and_one_token_is_left_to_compute(prompt_len: int, found: int) -> None:
    tables = BlockTables(BlockPool(9), prefix_cache=True)
    first = _computed(tables, 40)
    assert list(tables.find_prefix(_sequence(prompt_len)).table) == first.table[:found]


def test_nothing_is_found_without_a_prefix_cache() -> None:
    tables = BlockTables(BlockPool(9), prefix_cache=False)
    _computed(tables, 40)
    assert tables.find_prefix(_sequence(40)) == Prefix()


def test_a_block_is_published_only_when_all_of_it_is_computed() -> None:
    tables = BlockTables(BlockPool(9), prefix_cache=True)
    seq = _sequence(40)
    tables.grow(seq, 31)
    assert tables.find_prefix(_sequence(40)) == Prefix()
    tables.advance(seq, 31)
    assert tables.find_prefix(_sequence(40)).table == (seq.table[0],)


def test_a_prefix_in_use_costs_nothing_an_idle_one_leaves_the_free_blocks() -> None:
    pool = BlockPool(9)
    tables = BlockTables(pool, prefix_cache=True)
    first, second = _computed(tables, 40), _sequence(40)
    assert tables.saving(second, tables.find_prefix(second)) == 2
    tables.free(first)
    prefix = tables.find_prefix(second)
    assert tables.saving(second, prefix) == 0
    before = pool.num_free
    tables.begin(second, prefix)
    assert second.num_computed == 39  # 7 of them copied, from what the first one left in its last block
    tables.grow(second, 1)
    assert before - pool.num_free == 3


def test_a_partly_matching_block_is_copied_as_far_as_it_matches() -> None:
    tables = BlockTables(BlockPool(9), prefix_cache=True)
    first = _computed(tables, 48)
    second = _sequence(48, 1)
    second.token_ids[41] = 777
    prefix = tables.find_prefix(second)
    assert prefix == Prefix(tuple(first.table[:2]), (0, 1), (first.table[2],), 41)
    tables.begin(second, prefix)
    assert (second.num_computed, second.table[:2]) == (41, first.table[:2])
    assert tables.take_copies() == (BlockCopy(first.table[2], second.table[2]),)
    assert tables.take_copies() == ()
    tables.check_integrity([first, second])


def test_what_a_finished_sequence_left_in_its_last_block_is_found() -> None:
    tables = BlockTables(BlockPool(9), prefix_cache=True)
    tables.free(_computed(tables, 20))
    assert tables.find_prefix(_sequence(40)).num_tokens == 20
    assert tables.find_prefix(_sequence(19)).num_tokens == 18


def test_where_nothing_else_is_free_the_matching_block_itself_goes_on() -> None:
    pool = BlockPool(2)
    tables = BlockTables(pool, prefix_cache=True)
    tables.free(_computed(tables, 20))
    second = _sequence(20, 1)
    prefix = tables.find_prefix(second)
    tables.begin(second, prefix)
    assert tables.take_copies() == ()
    assert (tuple(second.table[1:]), second.num_computed) == (prefix.sources, 19)
    assert pool.is_writable(second.table[1])
    tables.check_integrity([second])


def test_a_shared_writable_block_is_noticed() -> None:
    tables = BlockTables(BlockPool(9), prefix_cache=True)
    first, second = _computed(tables, 20), _sequence(20, 1)
    tables.check_integrity([first])
    tables.grow(first, 20)
    tables.begin(second, Prefix(tuple(first.table), (0, 1, 2)))
    second.num_computed = 20
    with pytest.raises(IntegrityError, match=r"writable block \d+ is shared"):
        tables.check_integrity([first, second])


def _forked(tables: BlockTables, parent: Sequence, token_ids: list[int]) -> Sequence:
    child = _sequence(1, seq_id=9)
    child.token_ids = token_ids
    tables.share(child, parent, tables.common_tokens(child, parent))
    return child


def test_a_fork_shares_every_block_until_somebody_writes() -> None:
    pool = BlockPool(9)
    tables = BlockTables(pool, prefix_cache=False)
    parent = _computed(tables, 40)
    child = _forked(tables, parent, list(range(40)))
    assert (child.num_computed, child.table, pool.num_free) == (39, parent.table, 6)
    tables.check_integrity([parent, child])
    assert tables.grow(parent, 1)
    assert tables.take_copies() == (BlockCopy(child.table[2], parent.table[2]),)
    assert (child.table[:2], pool.num_free) == (parent.table[:2], 5)
    assert tables.grow(child, 1)
    assert tables.take_copies() == ()  # the last one to hold it writes in place
    tables.check_integrity([parent, child])


def test_a_fork_ends_where_the_tokens_part() -> None:
    tables = BlockTables(BlockPool(9), prefix_cache=True)
    parent = _computed(tables, 48)
    child = _forked(tables, parent, [*range(35), 777, 778])
    assert (child.num_computed, child.table) == (35, parent.table)
    tables.check_integrity([parent, child])


def test_a_block_that_can_be_found_is_copied_even_by_its_only_holder() -> None:
    pool = BlockPool(9)
    tables = BlockTables(pool, prefix_cache=True)
    parent = _computed(tables, 48)
    child = _forked(tables, parent, [*range(35), 777, 778])
    full = parent.table[2]
    tables.free(parent)
    assert tables.grow(child, 2)
    assert tables.take_copies() == (BlockCopy(full, child.table[2]),)
    assert tables.find_prefix(_sequence(60)).num_tokens == 48


def test_a_copy_that_does_not_fit_changes_nothing() -> None:
    pool = BlockPool(3)
    tables = BlockTables(pool, prefix_cache=True)
    parent = _computed(tables, 40)
    child = _forked(tables, parent, list(range(40)))
    assert not tables.grow(child, 1)
    assert (child.table, tables.take_copies()) == (parent.table, ())


def test_a_block_shared_by_different_histories_is_noticed() -> None:
    tables = BlockTables(BlockPool(9), prefix_cache=True)
    parent = _computed(tables, 40)
    child = _forked(tables, parent, list(range(40)))
    child.token_ids[37] = 777
    with pytest.raises(IntegrityError, match="holds other tokens than its own"):
        tables.check_integrity([parent, child])


def test_a_table_shorter_than_its_tokens_is_noticed() -> None:
    tables = BlockTables(BlockPool(9), prefix_cache=True)
    seq = _computed(tables, 20)
    seq.num_computed = 40
    with pytest.raises(IntegrityError, match="shorter than its computed tokens"):
        tables.check_integrity([seq])
