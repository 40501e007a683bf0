"""The waiting queue: priority, then arrival, and the way back to the front."""

from engine.records import Request, SamplingParams
from engine.sequence import Sequence
from engine.waiting import WaitingQueue


def _sequence(seq_id: int, priority: int = 0) -> Sequence:
    request = Request(str(seq_id), (1,), SamplingParams(max_tokens=1), priority=priority)
    return Sequence(seq_id, request, 1, frozenset(), 0, 0, 0.0)


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
