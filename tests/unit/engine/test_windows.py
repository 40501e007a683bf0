"""Layers with a window hold no more than that and the step's own tokens."""

from __future__ import annotations

import pytest

from engine.block_need import BlockNeed
from engine.blocks import BlockPool
from engine.errors import TooLargeForPool
from engine.fake_runner import FakeRunner, expected, fake_engine
from engine.records import Request, SamplingParams
from engine.sequence import Sequence
from engine.tables import BlockTables

PROMPT = tuple((7 * i) % 96 + 1 for i in range(400))


def _sequence(prompt_len: int, seq_id: int = 0) -> Sequence:
    request = Request(str(seq_id), PROMPT[:prompt_len], SamplingParams(max_tokens=32))
    return Sequence(seq_id, request, 32, frozenset(), 0, 0, 0.0, BlockNeed([21], step_tokens=32))


def _computed(tables: BlockTables, num_tokens: int) -> Sequence:
    seq = _sequence(200)
    tables.grow(seq, num_tokens)
    tables.advance(seq, num_tokens)
    return seq


@pytest.mark.parametrize(("computed", "dropped"), [(20, 0), (35, 0), (36, 1), (51, 1), (52, 2), (100, 5)])
def test_a_block_is_given_back_when_no_later_token_sees_it(computed: int, dropped: int) -> None:
    tables = BlockTables(BlockPool(20), prefix_cache=True)
    seq = _computed(tables, computed)
    assert seq.rows - len(seq.held) == dropped
    assert tables.pool.num_free == 20 - len(seq.held)
    tables.check_integrity([seq])
    tables.free(seq)
    assert tables.pool.num_free == 20


def test_a_cached_prefix_is_taken_only_as_far_as_it_is_seen() -> None:
    tables = BlockTables(BlockPool(20), prefix_cache=True)
    tables.free(_computed(tables, 100))
    seq = _sequence(150, seq_id=1)
    prefix = tables.find_prefix(seq)
    tables.begin(seq, prefix)
    assert (seq.num_computed, seq.rows, len(seq.held)) == (100, 7, 2)
    assert tables.saving(seq, prefix) == 0  # it will have others in their stead
    tables.check_integrity([seq])


def test_a_fork_takes_what_its_parent_still_holds_or_nothing() -> None:
    tables = BlockTables(BlockPool(20), prefix_cache=False)
    parent = _computed(tables, 100)
    near, far = _sequence(120, seq_id=1), _sequence(60, seq_id=2)
    assert tables.common_tokens(far, parent) == 0
    tables.share(near, parent, tables.common_tokens(near, parent))
    assert (near.num_computed, near.held) == (100, parent.held)
    tables.check_integrity([parent, near])


def test_a_request_far_longer_than_the_pool_is_served() -> None:
    settings = {"max_batched_tokens": 16, "max_num_seqs": 4, "max_model_len": 1000}
    engine = fake_engine(FakeRunner(num_blocks=6, windows=(40,)), **settings)
    engine.add(Request("a", PROMPT, SamplingParams(max_tokens=300, seed=1, ignore_eos=True)))
    events = []
    while engine.has_work:
        events += engine.step()
    tokens = [token for event in events for token in event.token_ids]
    assert tokens == expected(PROMPT, 300, seed=1, stop_ids=frozenset())
    assert events[-1].stats is not None
    assert events[-1].stats.blocks <= 5
    small = fake_engine(FakeRunner(num_blocks=4, windows=(40,)), **settings)
    with pytest.raises(TooLargeForPool):
        small.add(Request("a", PROMPT, SamplingParams(max_tokens=300)))
