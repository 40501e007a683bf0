"""What the scheduler promises, shares and saves of the pool, and that everything ends whatever happens."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import Policy, blocks_for
from engine.victims import MAX_PREEMPTIONS
from tests.unit.engine.scheduler_bench import Bench, counts_of


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
    assert counts_of(plan)[1] == 1
    assert [copy.source for copy in plan.copies] == saved
    assert (new.saved, new.num_computed, bench.scheduler.swap.num_free) == ([], computed + 1, 8 - len(saved))
    bench.step()
    assert bench.scheduler.swap.num_free == 8


def test_what_a_failed_step_should_have_saved_is_computed_again() -> None:
    bench = Bench(num_blocks=6, max_batched_tokens=64, host_blocks=8)
    old, new = bench.add(30, 40), bench.add(30, 40)
    while not new.preemptions:
        plan = bench.step()
    assert bench.scheduler.distrust(plan) == [old]
    bench.scheduler.check_integrity()
    assert (new.saved, new.num_saved, bench.scheduler.swap.num_free) == ([], 0, 8)


def test_each_beam_comes_back_to_its_own_cached_blocks_whichever_is_the_best() -> None:
    bench = Bench(num_blocks=24, max_batched_tokens=128)
    beams = [bench.add(40, 20), bench.add(40, 20)]
    for beam in beams:
        beam.party = beams[::-1]
    bench.step()
    before = [beam.table[:2] for beam in beams]
    for beam in beams:
        bench.scheduler._preempt(beam)
    bench.step()
    assert [beam.table[:2] for beam in beams] == before


def test_what_an_ended_sequence_saved_is_freed() -> None:
    bench = Bench(num_blocks=6, max_batched_tokens=64, host_blocks=8)
    _, new = bench.add(30, 40), bench.add(30, 40)
    while not new.preemptions:
        bench.step()
    bench.scheduler.remove(new)
    assert bench.scheduler.swap.num_free == 8


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
    assert counts_of(plan) == {0: 1, 1: 1, 2: 1, 3: 1}
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


@settings(max_examples=150)
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
