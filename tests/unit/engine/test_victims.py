"""Whom preemption strikes, and whom no more."""

from engine.records import Request, SamplingParams
from engine.sequence import Sequence
from engine.victims import MAX_PREEMPTIONS, choose_victim, is_protected, promised_blocks


def _sequence(seq_id: int, preemptions: int = 0) -> Sequence:
    request = Request(str(seq_id), (1,) * 20, SamplingParams(max_tokens=30))
    seq = Sequence(seq_id, request, 30, frozenset(), 0, 0, 0.0)
    seq.preemptions = preemptions
    return seq


def test_the_last_in_order_is_the_victim() -> None:
    running = [_sequence(0), _sequence(1), _sequence(2)]
    assert choose_victim(running) is running[2]


def test_the_protected_are_passed_over() -> None:
    running = [_sequence(0), _sequence(1, MAX_PREEMPTIONS - 1), _sequence(2, MAX_PREEMPTIONS)]
    assert [is_protected(seq) for seq in running] == [False, False, True]
    assert choose_victim(running) is running[1]
    assert choose_victim(running[2:]) is None


def test_all_blocks_a_protected_one_may_need_are_promised() -> None:
    protected = _sequence(1, MAX_PREEMPTIONS)
    assert protected.max_blocks == 4  # 20 + 30 tokens, the last one never computed
    assert promised_blocks([_sequence(0), protected, protected]) == 8
