"""Host blocks: whether they are worth their copies, and whose they are."""

import pytest

from engine.errors import IntegrityError
from engine.fake_runner import FixedCosts
from engine.records import Request, SamplingParams
from engine.sequence import Sequence
from engine.swap import SwapSpace


def _computed(num_tokens: int) -> Sequence:
    request = Request("r", (1,) * (num_tokens + 1), SamplingParams(max_tokens=4))
    seq = Sequence(0, request, 4, frozenset(), 0, 0, 0.0)
    seq.num_computed = num_tokens
    return seq


def test_only_what_fits_is_worth_it() -> None:
    space = SwapSpace(10, 2, FixedCosts())
    assert [space.is_worth(_computed(n)) for n in (0, 1, 32, 33)] == [False, True, True, False]
    dear = SwapSpace(10, 2, FixedCosts(block_seconds=1.0))
    assert [dear.is_worth(_computed(n)) for n in (0, 1, 32)] == [False] * 3


def test_a_block_is_free_only_when_the_step_that_copies_it_back_is_over() -> None:
    space, seq = SwapSpace(10, 3, FixedCosts()), _computed(20)
    assert space.take(seq) == [10, 11]
    space.settle()
    space.check_integrity([seq])
    assert space.give_back(seq) == [10, 11]
    assert (space.num_free, seq.saved, seq.num_saved) == (1, [], 0)
    space.check_integrity([])
    space.settle()
    assert space.num_free == 3


def test_a_failed_step_saved_nothing() -> None:
    space, before, now = SwapSpace(10, 4, FixedCosts()), _computed(20), _computed(20)
    space.take(before)
    space.settle()
    space.take(now)
    space.distrust()
    assert (before.num_saved, now.num_saved, now.saved, space.num_free) == (20, 0, [], 2)


def test_damage_is_noticed() -> None:
    space, seq = SwapSpace(10, 3, FixedCosts()), _computed(20)
    space.take(seq)
    with pytest.raises(IntegrityError, match="lost, or in more than one state"):
        space.check_integrity([])
    seq.num_saved = 40
    with pytest.raises(IntegrityError, match="saved more tokens than"):
        space.check_integrity([seq])
