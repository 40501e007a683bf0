"""The scheduler where more adapters are wanted than fit one step: who is parked, looked past, preempted."""

from __future__ import annotations

from engine.slot_turns import QUANTUM
from tests.unit.engine.scheduler_bench import Bench, counts_of


def test_while_all_fit_nothing_is_parked_and_nothing_changes_hands() -> None:
    bench = Bench(adapter_slots=2)
    for adapter in ("a", "b", None, "a", "b"):
        bench.add(10, 20, adapter=adapter)
    plans = [bench.step() for _ in range(20)]
    assert [change.slot for change in plans[0].slots] == [1, 2]
    assert not any(plan.slots for plan in plans[1:])
    assert not bench.turns.is_short


def test_running_ones_without_a_slot_keep_blocks_and_place_and_take_turns() -> None:
    bench = Bench(adapter_slots=1)
    first, second = bench.add(10, 40, adapter="a"), bench.add(10, 40, adapter="b")
    held: list[set[int]] = []
    while bench.live:
        before = [list(seq.table) for seq in (first, second)]
        held.append(set(counts_of(bench.step())))
        for seq, table in zip((first, second), before, strict=True):
            if seq.state == "running" and seq.seq_id not in held[-1]:
                assert seq.table == table
    assert held[: 3 * QUANTUM] == [{0}] * QUANTUM + [{1}] * QUANTUM + [{0}] * QUANTUM
    assert first.preemptions == second.preemptions == 0


def test_base_rows_are_in_every_step() -> None:
    bench = Bench(adapter_slots=1)
    base = bench.add(10, 60)
    for adapter in "abc":
        bench.add(10, 30, adapter=adapter)
    while base.state == "running" or base.state == "waiting":
        assert base.seq_id in counts_of(bench.step())


def test_one_whose_adapter_has_no_slot_is_looked_past() -> None:
    bench = Bench(adapter_slots=1)
    bench.add(10, 40, adapter="a")
    bench.step()
    other, same, base = (bench.add(10, 40, adapter=adapter) for adapter in ("b", "a", None))
    assert counts_of(bench.step()) == {0: 1, same.seq_id: 10, base.seq_id: 10}
    assert other.state == "waiting"
    for _ in range(QUANTUM - 1):
        bench.step()
    assert other.state == "running"


def test_endless_requests_for_one_adapter_do_not_keep_the_others_waiting() -> None:
    bench = Bench(adapter_slots=1, max_num_seqs=6)
    for _ in range(3):
        bench.add(4, 9, adapter="a")
    for _ in range(QUANTUM):
        bench.step()
    lone = bench.add(20, 10, adapter="b")
    steps = 0
    while lone.state != "finished":
        bench.step()
        steps += 1
        for _ in range(3 - sum(seq.adapter == "a" for seq in bench.live)):
            bench.add(4, 9, adapter="a")
    assert lone.first_token_at is not None
    assert steps <= QUANTUM + 2 * 10  # the first turn comes, then every other one


def test_one_that_found_no_place_is_not_overtaken_while_its_adapter_is_out_of_its_slot() -> None:
    bench = Bench(adapter_slots=1, max_num_seqs=3)
    for length in (9, 30, 30):
        bench.add(4, length, adapter="a")
    for _ in range(QUANTUM):
        bench.step()
    waits = bench.add(4, 3, adapter="b")
    bench.step()
    later = [bench.add(4, 3, adapter=adapter) for adapter in ("a", None, "a")]
    while waits.state == "waiting":
        bench.step()
        if waits.state == "waiting":
            assert all(seq.state == "waiting" for seq in later)
    assert bench.seqs[0].state == "finished"
    assert [bench.seqs[1].state, bench.seqs[2].state] == ["running", "running"]
    while bench.live:
        bench.step()


def test_parked_ones_are_preempted_before_those_that_are_computed() -> None:
    bench = Bench(num_blocks=7, max_batched_tokens=64, adapter_slots=1)
    old, new = bench.add(30, 40, adapter="a"), bench.add(30, 60, adapter="b")
    while not (old.preemptions or new.preemptions):
        plan = bench.step()
    victim, other = (old, new) if old.preemptions else (new, old)
    assert victim is old  # the last in order would be the other one, whose turn it was
    assert set(counts_of(plan)) == {other.seq_id}
    while bench.live:
        bench.step()


def test_no_share_goes_across_the_position_where_an_adapter_begins_to_hold() -> None:
    bench = Bench(max_batched_tokens=32)
    seq = bench.add(50, 3, adapter="a", holds_from=40)
    plans = [bench.step() for _ in range(4)]
    shares = [(plan.seqs[0].start, plan.seqs[0].count, plan.seqs[0].adapter_slot) for plan in plans]
    assert shares == [(0, 32, 0), (32, 8, 0), (40, 10, 1), (50, 1, 1)]
    assert [plan.seqs[0].samples for plan in plans] == [False, False, True, True]
    assert seq.num_outputs == 2


def test_one_before_its_position_needs_no_slot_and_is_parked_when_it_gets_there() -> None:
    bench = Bench(max_batched_tokens=64, adapter_slots=1)
    bench.add(4, 60, adapter="a")
    bench.step()
    seq = bench.add(50, 3, adapter="b", holds_from=30)
    assert counts_of(bench.step()) == {0: 1, 1: 30}
    for _ in range(QUANTUM - 2):
        assert counts_of(bench.step()) == {0: 1}
    assert counts_of(bench.step()) == {1: 20}
    assert seq.preemptions == 0
