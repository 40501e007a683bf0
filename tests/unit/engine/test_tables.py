"""Block tables: growth, prefixes, publication, return."""

import pytest

from engine.blocks import BlockPool
from engine.errors import IntegrityError
from engine.records import Request, SamplingParams
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
    assert tables.find_prefix(_sequence(prompt_len)) == first.table[:found]


def test_nothing_is_found_without_a_prefix_cache() -> None:
    tables = BlockTables(BlockPool(9), prefix_cache=False)
    _computed(tables, 40)
    assert tables.find_prefix(_sequence(40)) == []


def test_a_block_is_published_only_when_all_of_it_is_computed() -> None:
    tables = BlockTables(BlockPool(9), prefix_cache=True)
    seq = _sequence(40)
    tables.grow(seq, 31)
    assert tables.find_prefix(_sequence(40)) == []
    tables.advance(seq, 31)
    assert tables.find_prefix(_sequence(40)) == seq.table[:1]


def test_a_prefix_in_use_costs_nothing_an_idle_one_leaves_the_free_blocks() -> None:
    pool = BlockPool(9)
    tables = BlockTables(pool, prefix_cache=True)
    first, second = _computed(tables, 40), _sequence(40)
    prefix = tables.find_prefix(second)
    assert tables.saving(prefix) == 2
    tables.free(first)
    assert tables.saving(prefix) == 0
    before = pool.num_free
    tables.begin(second, prefix)
    assert second.num_computed == 32
    tables.grow(second, 8)
    assert before - pool.num_free == 3


def test_a_shared_writable_block_is_noticed() -> None:
    tables = BlockTables(BlockPool(9), prefix_cache=True)
    first, second = _computed(tables, 20), _sequence(20, 1)
    tables.check_integrity([first])
    tables.begin(second, list(first.table))
    with pytest.raises(IntegrityError, match=r"writable block \d+ is shared"):
        tables.check_integrity([first, second])


def test_a_table_shorter_than_its_tokens_is_noticed() -> None:
    tables = BlockTables(BlockPool(9), prefix_cache=True)
    seq = _computed(tables, 20)
    seq.num_computed = 40
    with pytest.raises(IntegrityError, match="shorter than its computed tokens"):
        tables.check_integrity([seq])
