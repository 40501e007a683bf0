"""The scheduler: who advances by how much in each step, who waits, who is preempted."""

import gc
import sys
from types import FrameType

import pytest

from engine.errors import IntegrityError
from engine.victims import MAX_PREEMPTIONS
from tests.unit.engine.scheduler_bench import Bench, counts_of


def test_a_long_prompt_is_computed_in_chunks_and_samples_once_at_its_end() -> None:
    bench = Bench(max_batched_tokens=32)
    bench.add(70)
    plans = [bench.step() for _ in range(4)]
    assert [counts_of(plan) for plan in plans] == [{0: 32}, {0: 32}, {0: 6}, {0: 1}]
    assert [plan.seqs[0].samples for plan in plans] == [False, False, True, True]


def test_decodes_and_prompt_chunks_share_one_step() -> None:
    bench = Bench(max_batched_tokens=32)
    bench.add(10)
    bench.step()
    bench.add(60)
    assert counts_of(bench.step()) == {0: 1, 1: 31}
    bench.add(60)
    assert counts_of(bench.step()) == {0: 1, 1: 29, 2: 2}


def test_every_running_sequence_advances_beside_a_prompt_that_stands_before_it() -> None:
    bench = Bench(max_num_seqs=4, max_batched_tokens=8)
    for _ in range(3):
        bench.add(2, 30, priority=1)
    bench.step()
    bench.add(40, priority=0)
    assert counts_of(bench.step()) == {0: 1, 1: 1, 2: 1, 3: 5}
    assert counts_of(bench.step()) == {3: 5, 0: 1, 1: 1, 2: 1}


def test_no_more_run_than_may() -> None:
    bench = Bench(max_num_seqs=2)
    for _ in range(3):
        bench.add(4, 2)
    assert counts_of(bench.step()) == {0: 4, 1: 4}
    assert counts_of(bench.step()) == {0: 1, 1: 1}
    assert counts_of(bench.step()) == {2: 4}


def test_a_small_request_does_not_overtake_a_large_one_that_waits_for_blocks() -> None:
    bench = Bench(num_blocks=8, max_batched_tokens=200)
    bench.add(80, 10)
    bench.step()
    large, small = bench.add(60), bench.add(5)
    bench.step()
    assert (large.state, small.state) == ("waiting", "waiting")
    while large.state == "waiting":
        bench.step()
    assert bench.seqs[0].state == "finished"


def test_priority_goes_before_arrival() -> None:
    bench = Bench(max_num_seqs=1)
    late, early = bench.add(4, 1, priority=1), bench.add(4, 1, priority=0)
    bench.step()
    assert (early.state, late.state) == ("finished", "waiting")


def test_admission_counts_the_tokens_that_running_prompts_have_still_to_compute() -> None:
    bench = Bench(num_blocks=8, max_batched_tokens=20)
    bench.add(100, 4)  # 7 blocks, of which the first step takes 1 or 2
    bench.step()
    bench.add(30)
    bench.step()
    assert [seq.state for seq in bench.seqs] == ["running", "waiting"]


def test_a_table_grows_block_by_block() -> None:
    bench = Bench(max_batched_tokens=300)
    seq = bench.add(273, 40)
    bench.step()
    assert len(seq.table) == 18
    for _ in range(15):
        bench.step()
    assert (seq.num_computed, len(seq.table)) == (288, 18)
    bench.step()
    assert len(seq.table) == 19


def test_blocks_come_back_at_the_end() -> None:
    bench = Bench()
    bench.add(40, 3)
    while bench.live:
        bench.step()
    assert bench.pool.num_free == bench.pool.num_blocks


def test_a_shared_prefix_is_computed_once() -> None:
    bench = Bench(max_batched_tokens=64)
    bench.add(50, first=7)
    bench.step()
    second = bench.add(50, first=7)
    assert counts_of(bench.step()) == {0: 1, 1: 2}
    assert second.cached_tokens == 48
    assert second.table[:3] == bench.seqs[0].table[:3]
    counters = bench.scheduler.counters
    assert (counters.prefix_queries, counters.prefix_hits) == (100, 48)


def test_the_newest_is_preempted_and_resumes_with_all_its_tokens() -> None:
    bench = Bench(num_blocks=6, max_batched_tokens=64)
    old, new = bench.add(30, 40), bench.add(30, 40)
    while not new.preemptions:
        bench.step()
    assert (old.state, old.preemptions) == ("running", 0)
    assert (new.state, new.table, new.num_computed) == ("waiting", [], 0)
    outputs = new.num_outputs
    assert outputs > 0
    while new.state == "waiting":
        bench.step()
    assert new.num_outputs >= outputs
    assert new.cached_tokens == 0  # the account is of its first admission


def test_nobody_is_admitted_in_a_step_that_preempts() -> None:
    bench = Bench(num_blocks=6, max_batched_tokens=64)
    bench.add(30, 40)
    new = bench.add(30, 40)
    while not new.preemptions:
        plan = bench.step()
    assert counts_of(plan) == {0: 1}


def test_the_lowest_priority_is_preempted_even_if_older() -> None:
    bench = Bench(num_blocks=6, max_batched_tokens=64)
    low, high = bench.add(30, 40, priority=1), bench.add(30, 40, priority=0)
    while not (low.preemptions or high.preemptions):
        bench.step()
    assert (low.preemptions, high.preemptions) == (1, 0)


def test_a_protected_sequence_waits_until_all_it_may_need_is_there_then_runs_to_its_end() -> None:
    bench = Bench(num_blocks=8, max_batched_tokens=128)
    protected = bench.add(20, 100)
    protected.preemptions = MAX_PREEMPTIONS
    other = bench.add(20, 100)
    other.preemptions = MAX_PREEMPTIONS
    bench.step()
    assert (protected.state, other.state) == ("running", "waiting")  # 8 blocks each, promised to one
    while protected.state == "running":
        bench.step()
    bench.step()
    assert (protected.state, other.state) == ("finished", "running")
    assert protected.preemptions == other.preemptions == MAX_PREEMPTIONS


def test_a_protected_sequence_preempts_older_ones() -> None:
    bench = Bench(num_blocks=6, max_batched_tokens=128)
    old = bench.add(30, 40)
    protected = bench.add(30, 40)
    protected.preemptions = MAX_PREEMPTIONS
    while not old.preemptions:
        bench.step()
    assert protected.state == "running"


def test_removal_in_any_phase_frees_before_the_next_step() -> None:
    bench = Bench(max_num_seqs=2, max_batched_tokens=16)
    decoding = bench.add(4, 30)
    bench.step()
    prefilling, queued = bench.add(60), bench.add(60)
    bench.step()
    assert [seq.state for seq in (decoding, prefilling, queued)] == ["running", "running", "waiting"]
    for seq in (queued, prefilling, decoding):
        bench.scheduler.remove(seq)
        bench.scheduler.check_integrity()
    assert bench.pool.num_free == bench.pool.num_blocks
    assert bench.step().seqs == ()


def _calls_of_a_step(*, finished: int, waiting: int) -> int:
    """Function calls made by one schedule() with 4 sequences running."""
    bench = Bench(max_num_seqs=4, max_batched_tokens=64)
    for _ in range(finished):
        bench.add(4, 1, first=5)
    while bench.live:
        bench.step()
    for _ in range(4):
        bench.add(4, 100, first=6)
    bench.step()
    for _ in range(waiting):
        bench.add(30, 4, first=8)
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    gc.disable()  # a collection in between would call whoever listens to it
    sys.setprofile(count)
    try:
        bench.scheduler.schedule()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def test_a_step_does_no_work_for_those_that_wait_or_have_finished() -> None:
    few = _calls_of_a_step(finished=0, waiting=1)
    assert _calls_of_a_step(finished=0, waiting=200) == few
    assert _calls_of_a_step(finished=500, waiting=1000) == _calls_of_a_step(finished=1, waiting=1)


def test_a_broken_promise_is_noticed() -> None:
    bench = Bench(num_blocks=4, max_batched_tokens=64)
    bench.add(40, 4)
    bench.step()
    bench.seqs[0].preemptions = MAX_PREEMPTIONS
    bench.pool.allocate(bench.pool.num_free)
    bench.seqs[0].token_ids += [1] * 20
    with pytest.raises(IntegrityError, match="blocks promised to it are not there"):
        bench.scheduler.schedule()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda bench: setattr(bench.seqs[0], "state", "waiting"), "in the running list is in another state"),
        (lambda bench: bench.scheduler.running.reverse(), "the running list is out of order"),
        (lambda bench: setattr(bench.seqs[2], "num_computed", 3), "a waiting sequence holds blocks"),
        (lambda bench: bench.seqs[0].table.pop(), "tables name it"),
    ],
)
def test_damage_is_noticed(harm: object, message: str) -> None:
    bench = Bench(max_num_seqs=2)
    for _ in range(3):
        bench.add(10)
    bench.step()
    assert callable(harm)
    harm(bench)
    with pytest.raises(IntegrityError, match=message):
        bench.scheduler.check_integrity()


def test_promises_beyond_the_pool_are_noticed() -> None:
    bench = Bench(num_blocks=8, max_batched_tokens=128)
    for _ in range(2):
        bench.add(20, 100)
    bench.step()
    for seq in bench.seqs:
        seq.preemptions = MAX_PREEMPTIONS
    with pytest.raises(IntegrityError, match="more blocks are promised"):
        bench.scheduler.check_integrity()
