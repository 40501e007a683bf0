"""Host blocks: when they are worth their copies, and whose they are."""

import pytest

from engine.errors import IntegrityError
from engine.records import Request, SamplingParams
from engine.sequence import Sequence
from engine.swap import SwapCosts, SwapSpace

CHEAP = SwapCosts(block_bytes=1, link_bytes_per_s=1e9, token_flops=1.0, flops_per_s=1.0)


def _computed(num_tokens: int) -> Sequence:
    request = Request("r", (1,) * (num_tokens + 1), SamplingParams(max_tokens=4))
    seq = Sequence(0, request, 4, frozenset(), 0, 0, 0.0)
    seq.num_computed = num_tokens
    return seq


@pytest.mark.parametrize(("num_tokens", "swap"), [(16, False), (17, False), (31, True), (320, False)])
def test_bytes_over_the_link_against_flops_again(num_tokens: int, swap: bool) -> None:
    # A block takes 2 x 1000 / 100 s = 20 s both ways, a token 1.3 s.
    costs = SwapCosts(block_bytes=1000, link_bytes_per_s=100, token_flops=13, flops_per_s=10)
    assert costs.prefers_swap(num_tokens) == (2 * -(-num_tokens // 16) * 10 < num_tokens * 1.3)
    assert costs.prefers_swap(16) == (20 < 16 * 1.3)
    assert SwapCosts(1000, 100, 13, 1e9).prefers_swap(num_tokens) is False


def test_only_what_fits_is_worth_it() -> None:
    space = SwapSpace(10, 2, CHEAP)
    assert [space.is_worth(_computed(n)) for n in (0, 1, 32, 33)] == [False, True, True, False]


def test_a_block_is_free_only_when_the_step_that_copies_it_back_is_over() -> None:
    space, seq = SwapSpace(10, 3, CHEAP), _computed(20)
    assert space.take(seq) == [10, 11]
    space.settle()
    space.check_integrity([seq])
    assert space.give_back(seq) == [10, 11]
    assert (space.num_free, seq.saved, seq.num_saved) == (1, [], 0)
    space.check_integrity([])
    space.settle()
    assert space.num_free == 3


def test_a_failed_step_saved_nothing() -> None:
    space, before, now = SwapSpace(10, 4, CHEAP), _computed(20), _computed(20)
    space.take(before)
    space.settle()
    space.take(now)
    space.distrust()
    assert (before.num_saved, now.num_saved, now.saved, space.num_free) == (20, 0, [], 2)


def test_damage_is_noticed() -> None:
    space, seq = SwapSpace(10, 3, CHEAP), _computed(20)
    space.take(seq)
    with pytest.raises(IntegrityError, match="lost, or in more than one state"):
        space.check_integrity([])
    seq.num_saved = 40
    with pytest.raises(IntegrityError, match="saved more tokens than"):
        space.check_integrity([seq])
