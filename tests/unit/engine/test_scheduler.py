"""The scheduler: who advances by how much in each step, who waits, who is preempted."""

import gc
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.blocks import BlockPool
from engine.config import BLOCK_SIZE, Policy, blocks_for
from engine.errors import IntegrityError
from engine.records import Request, SamplingParams, StepPlan
from engine.scheduler import Limits, Scheduler, SchedulerCounters
from engine.sequence import Sequence
from engine.swap import SwapCosts, SwapSpace
from engine.victims import MAX_PREEMPTIONS


class Bench:
    """A scheduler whose sequences generate the token 1 until their length is reached."""

    def __init__(
        self,
        num_blocks: int = 64,
        max_num_seqs: int = 8,
        max_batched_tokens: int = 32,
        *,
        host_blocks: int = 0,
        **terms: Any,
    ) -> None:
        self.pool = BlockPool(num_blocks)
        self.limits = Limits(max_num_seqs, max_batched_tokens, **terms)
        swap = SwapSpace(num_blocks, host_blocks, SwapCosts(1, 1e9, token_flops=1.0, flops_per_s=1.0))
        self.scheduler = Scheduler(self.limits, self.pool, swap, SchedulerCounters(), prefix_cache=True)
        self.seqs: list[Sequence] = []

    def add(
        self, prompt_len: int, max_tokens: int = 8, *, first: int | None = None, priority: int = 0
    ) -> Sequence:
        """Prompts differ in their first token unless `first` is given."""
        seq_id = len(self.seqs)
        prompt = (1000 + seq_id if first is None else first, *range(1, prompt_len))
        request = Request(str(seq_id), prompt, SamplingParams(max_tokens=max_tokens), priority=priority)
        seq = Sequence(seq_id, request, max_tokens, frozenset(), 0, 0, 0.0)
        self.seqs.append(seq)
        self.scheduler.add(seq)
        return seq

    def fork(self, parent: Sequence, max_tokens: int = 8) -> Sequence:
        """A sequence whose prompt is all that its parent has by now."""
        request = Request(str(len(self.seqs)), tuple(parent.token_ids), SamplingParams(max_tokens=max_tokens))
        seq = Sequence(len(self.seqs), request, max_tokens, frozenset(), 0, 0, 0.0)
        self.seqs.append(seq)
        self.scheduler.fork(seq, parent)
        return seq

    def step(self) -> StepPlan:
        """Schedule, check, and apply as a runner without fault would."""
        plan = self.scheduler.schedule()
        self._check(plan)
        for share in plan.seqs:
            seq = self.seqs[share.seq_id]
            self.scheduler.advance(seq, share.count)
            if share.samples and seq.append(1, now=0.0) is not None:
                self.scheduler.remove(seq)
        self.scheduler.check_integrity()
        return plan

    def _check(self, plan: StepPlan) -> None:
        assert plan.num_tokens <= self.limits.max_batched_tokens
        assert len({share.seq_id for share in plan.seqs}) == len(plan.seqs) <= self.limits.max_num_seqs
        assert {share.seq_id for share in plan.seqs} == {seq.seq_id for seq in self.scheduler.running}
        for share in plan.seqs:
            assert share.count >= 1
            assert len(share.block_table) >= blocks_for(share.start + share.count)
            assert all(
                self.pool.is_writable(block) for block in share.block_table[share.start // BLOCK_SIZE :]
            )
            assert share.samples == (share.start + share.count == len(share.token_ids))

    @property
    def live(self) -> list[Sequence]:
        return [seq for seq in self.seqs if seq.state != "finished"]


def _counts(plan: StepPlan) -> dict[int, int]:
    return {share.seq_id: share.count for share in plan.seqs}


def test_a_long_prompt_is_computed_in_chunks_and_samples_once_at_its_end() -> None:
    bench = Bench(max_batched_tokens=32)
    bench.add(70)
    plans = [bench.step() for _ in range(4)]
    assert [_counts(plan) for plan in plans] == [{0: 32}, {0: 32}, {0: 6}, {0: 1}]
    assert [plan.seqs[0].samples for plan in plans] == [False, False, True, True]


def test_decodes_and_prompt_chunks_share_one_step() -> None:
    bench = Bench(max_batched_tokens=32)
    bench.add(10)
    bench.step()
    bench.add(60)
    assert _counts(bench.step()) == {0: 1, 1: 31}
    bench.add(60)
    assert _counts(bench.step()) == {0: 1, 1: 29, 2: 2}


def test_every_running_sequence_advances_beside_a_prompt_that_stands_before_it() -> None:
    bench = Bench(max_num_seqs=4, max_batched_tokens=8)
    for _ in range(3):
        bench.add(2, 30, priority=1)
    bench.step()
    bench.add(40, priority=0)
    assert _counts(bench.step()) == {0: 1, 1: 1, 2: 1, 3: 5}
    assert _counts(bench.step()) == {3: 5, 0: 1, 1: 1, 2: 1}


def test_no_more_run_than_may() -> None:
    bench = Bench(max_num_seqs=2)
    for _ in range(3):
        bench.add(4, 2)
    assert _counts(bench.step()) == {0: 4, 1: 4}
    assert _counts(bench.step()) == {0: 1, 1: 1}
    assert _counts(bench.step()) == {2: 4}


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
    assert _counts(bench.step()) == {0: 1, 1: 2}
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


def test_what_is_saved_in_host_memory_is_not_computed_again() -> None:
    bench = Bench(num_blocks=6, max_batched_tokens=64, host_blocks=8)
    _, new = bench.add(30, 40), bench.add(30, 40)
    while not new.preemptions:
        plan = bench.step()
    computed, saved = new.num_saved, new.saved
    assert computed == len(new.token_ids) - 1
    assert [copy.target for copy in plan.copies] == saved
    assert bench.scheduler.counters.swaps == 1
    while new.state == "waiting":
        plan = bench.step()
    assert _counts(plan)[1] == 1
    assert [copy.source for copy in plan.copies] == saved
    assert (new.saved, new.num_computed, bench.scheduler.swap.num_free) == ([], computed + 1, 8 - len(saved))
    bench.step()
    assert bench.scheduler.swap.num_free == 8


def test_what_a_failed_step_should_have_saved_is_computed_again() -> None:
    bench = Bench(num_blocks=6, max_batched_tokens=64, host_blocks=8)
    _, new = bench.add(30, 40), bench.add(30, 40)
    while not new.preemptions:
        bench.step()
    bench.scheduler.distrust_saved()
    bench.scheduler.check_integrity()
    assert (new.saved, new.num_saved, bench.scheduler.swap.num_free) == ([], 0, 8)


def test_what_an_ended_sequence_saved_is_freed() -> None:
    bench = Bench(num_blocks=6, max_batched_tokens=64, host_blocks=8)
    _, new = bench.add(30, 40), bench.add(30, 40)
    while not new.preemptions:
        bench.step()
    bench.scheduler.remove(new)
    assert bench.scheduler.swap.num_free == 8


def test_nobody_is_admitted_in_a_step_that_preempts() -> None:
    bench = Bench(num_blocks=6, max_batched_tokens=64)
    bench.add(30, 40)
    new = bench.add(30, 40)
    while not new.preemptions:
        plan = bench.step()
    assert _counts(plan) == {0: 1}


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


def test_without_eviction_all_blocks_a_sequence_may_need_are_promised_before_it_runs() -> None:
    bench = Bench(num_blocks=12, max_batched_tokens=64, policy="guaranteed_no_evict")
    first, second = bench.add(20, 70), bench.add(20, 90)  # 6 and 7 blocks at their ends
    while first.state != "finished":
        bench.step()
        assert second.state == "waiting" or first.state == "finished"
    bench.step()
    assert second.state == "running"
    assert bench.scheduler.counters.preemptions == 0


def test_a_promise_counts_a_prefix_in_use_once() -> None:
    bench = Bench(num_blocks=10, max_batched_tokens=128, policy="guaranteed_no_evict")
    bench.add(70, 10, first=7)  # 5 blocks, of which 4 are the prefix
    bench.step()
    second, third = bench.add(70, 10, first=7), bench.add(70, 10)
    bench.step()
    assert (second.state, third.state) == ("running", "waiting")


def test_admission_leaves_the_watermark_free_while_others_run() -> None:
    for watermark, state in ((3, "running"), (4, "waiting")):
        bench = Bench(num_blocks=8, max_batched_tokens=64, watermark_blocks=watermark)
        bench.add(20, 2)
        bench.step()
        second = bench.add(20, 20)  # its 2 blocks and one more
        bench.step()
        assert second.state == state


def test_the_first_to_run_may_take_the_whole_pool() -> None:
    bench = Bench(num_blocks=8, max_batched_tokens=200, watermark_blocks=7)
    alone = bench.add(120, 9)
    bench.step()
    assert alone.state == "running"


def test_forks_run_at_once_on_shared_blocks() -> None:
    bench = Bench(max_batched_tokens=64)
    parent = bench.add(40, 20)
    bench.step()
    forks = [bench.fork(parent) for _ in range(3)]
    assert [seq.state for seq in forks] == ["running"] * 3
    assert bench.pool.num_blocks - bench.pool.num_free == 3
    plan = bench.step()
    assert _counts(plan) == {0: 1, 1: 1, 2: 1, 3: 1}
    assert len(plan.copies) == 3
    assert bench.pool.num_blocks - bench.pool.num_free == 2 + 4


def test_a_fork_without_a_place_room_or_running_parent_waits() -> None:
    bench = Bench(num_blocks=4, max_num_seqs=2, max_batched_tokens=64)
    parent = bench.add(40, 20)
    assert bench.fork(parent, 4).state == "waiting"
    bench.scheduler.remove(bench.seqs[1])
    bench.step()
    assert bench.fork(parent, 30).state == "waiting"  # a copy and a block to go on, beside the parent's own
    full = Bench(max_num_seqs=1, max_batched_tokens=64)
    parent = full.add(40, 20)
    full.step()
    assert full.fork(parent).state == "waiting"


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


@settings(deadline=None, max_examples=150)
@given(
    policy=st.sampled_from(["max_utilization", "guaranteed_no_evict"]),
    watermark=st.integers(0, 3),
    host_blocks=st.sampled_from([0, 3, 20]),
    num_blocks=st.integers(4, 16),
    max_num_seqs=st.integers(1, 6),
    spare_tokens=st.integers(0, 40),
    history=st.lists(
        st.one_of(
            st.tuples(
                st.just("add"),
                st.integers(1, 40),
                st.integers(1, 24),
                st.sampled_from([None, 1, 2]),
                st.integers(0, 2),
            ),
            st.tuples(st.just("step"), st.integers(1, 4)),
            st.tuples(st.just("remove"), st.integers(0, 99)),
            st.tuples(st.just("fork"), st.integers(0, 99), st.integers(1, 24)),
        ),
        max_size=40,
    ),
)
def test_integrity_and_an_end_through_random_histories(
    policy: Policy,
    watermark: int,
    host_blocks: int,
    num_blocks: int,
    max_num_seqs: int,
    spare_tokens: int,
    history: list[tuple[Any, ...]],
) -> None:
    terms = {"policy": policy, "watermark_blocks": watermark, "host_blocks": host_blocks}
    bench = Bench(num_blocks, max_num_seqs, max_num_seqs + spare_tokens, **terms)
    for action, *numbers in history:
        if action == "add":
            prompt_len, max_tokens, first, priority = numbers
            if blocks_for(prompt_len + max_tokens - 1) <= num_blocks:
                bench.add(prompt_len, max_tokens, first=first, priority=priority)
        elif action == "step":
            for _ in range(numbers[0]):
                bench.step()
        elif action == "fork" and bench.live:
            parent = bench.live[numbers[0] % len(bench.live)]
            if blocks_for(len(parent.token_ids) + numbers[1] - 1) <= num_blocks:
                bench.fork(parent, numbers[1])
                bench.scheduler.check_integrity()
        elif bench.live:
            bench.scheduler.remove(bench.live[numbers[0] % len(bench.live)], forget=numbers[0] % 2 == 0)
            bench.scheduler.check_integrity()
    # Everything ends: each step computes a token, and no token is computed more often than it is preempted.
    most = sum((seq.prompt_len + seq.max_tokens) * (MAX_PREEMPTIONS + 1) for seq in bench.live)
    steps = 0
    while bench.live:
        bench.step()
        steps += 1
        assert steps <= most + len(bench.seqs) * MAX_PREEMPTIONS
    bench.step()
    assert (bench.pool.num_free, bench.scheduler.swap.num_free) == (num_blocks, host_blocks)
    most_preemptions = 0 if policy == "guaranteed_no_evict" else MAX_PREEMPTIONS
    assert all(seq.preemptions <= most_preemptions for seq in bench.seqs)
