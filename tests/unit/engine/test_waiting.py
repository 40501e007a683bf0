"""The waiting queue: priority, then arrival, and the way back to the front."""

from engine.records import Request, SamplingParams
from engine.sequence import Sequence
from engine.waiting import WaitingQueue


def _sequence(seq_id: int, priority: int = 0, adapter: str | None = None, holds_from: int = 0) -> Sequence:
    request = Request(str(seq_id), (1,), SamplingParams(max_tokens=1), adapter, priority=priority)
    return Sequence(seq_id, request, 1, frozenset(), 0, holds_from, 0.0)


def test_first_come_first_served_within_a_priority() -> None:
    queue = WaitingQueue()
    for seq_id, priority in enumerate([5, 0, 5, -1, 0]):
        queue.add(_sequence(seq_id, priority))
    assert [seq.seq_id for seq in queue] == [3, 1, 4, 0, 2]
    first = queue.first_of(queue.lines)
    assert first is not None
    assert first.seq_id == 3
    assert len(queue) == 5


def test_one_that_comes_back_stands_before_later_arrivals() -> None:
    queue = WaitingQueue()
    seqs = [_sequence(seq_id) for seq_id in range(3)]
    for seq in seqs:
        queue.add(seq)
    queue.remove(seqs[0])
    queue.add(seqs[0])
    assert queue.first_of([None]) is seqs[0]


def test_removal_takes_out_that_very_sequence() -> None:
    queue = WaitingQueue()
    seqs = [_sequence(seq_id) for seq_id in range(5)]
    for seq in seqs:
        queue.add(seq)
    queue.remove(seqs[2])
    assert list(queue) == [seqs[0], seqs[1], seqs[3], seqs[4]]


def test_lines_of_adapters_are_looked_at_apart() -> None:
    queue = WaitingQueue()
    seqs = [_sequence(seq_id, adapter=adapter) for seq_id, adapter in enumerate(["a", "b", None, "a"])]
    for seq in seqs:
        queue.add(seq)
    assert set(queue.lines) == {"a", "b", None}
    assert queue.first_of(["b", None]) is seqs[1]
    assert queue.first_of(["c"]) is None
    queue.remove(seqs[1])
    assert set(queue.lines) == {"a", None}
    assert list(queue) == [seqs[0], seqs[2], seqs[3]]


def test_one_whose_adapter_holds_later_stands_with_the_base_until_it_was_preempted() -> None:
    queue = WaitingQueue()
    seq = _sequence(0, adapter="a", holds_from=5)
    queue.add(seq)
    assert queue.first_of([None]) is seq
    queue.remove(seq)
    seq.preemptions = 1
    queue.add(seq)
    assert queue.first_of(["a"]) is seq


def test_one_that_was_turned_away_holds_up_what_comes_later_in_every_line() -> None:
    queue = WaitingQueue()
    seqs = [_sequence(seq_id, adapter=adapter) for seq_id, adapter in enumerate(["a", "b", None])]
    for seq in seqs:
        queue.add(seq)
    queue.turn_away(seqs[1])
    assert queue.first_of([None]) is None
    assert queue.first_of(["a", None]) is seqs[0]
    queue.turn_away(seqs[0])
    queue.turn_away(seqs[0])
    queue.remove(seqs[0])
    seqs[0].state = "running"
    assert queue.first_of([None]) is None
    assert queue.first_of(["b"]) is seqs[1]
    queue.remove(seqs[1])
    seqs[1].state = "finished"
    assert queue.first_of([None]) is seqs[2]
