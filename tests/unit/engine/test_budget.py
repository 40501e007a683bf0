"""The token budget of a step, and what tokens weigh in it."""

import math

import pytest

from engine.budget import TokenBudget, TokenWeights

PLAIN, HEAVY = TokenWeights(), TokenWeights(balance=100.0)


def test_takes_what_is_wanted_until_nothing_is_left() -> None:
    budget = TokenBudget(10, PLAIN)
    assert [budget.take(4, 500) for _ in range(4)] == [4, 4, 2, 0]


def test_leaves_what_is_reserved_for_others() -> None:
    budget = TokenBudget(10, PLAIN)
    assert budget.take(100, 0, reserve=3) == 7
    assert budget.take(1, 0, reserve=3) == 0
    assert budget.take(1, 0, reserve=0) == 1


def test_a_refund_can_be_taken_again() -> None:
    budget = TokenBudget(4, PLAIN)
    budget.take(4, 0)
    budget.refund(3)
    assert budget.take(9, 0) == 3


def test_a_token_weighs_one_and_its_share_of_context() -> None:
    assert HEAVY.of(100, 1) == 2
    assert HEAVY.of(300, 4) == pytest.approx(4 + 3.00 + 3.01 + 3.02 + 3.03)
    assert PLAIN.of(10**6, 7) == 7


@pytest.mark.parametrize("weights", [PLAIN, HEAVY, TokenWeights(3.5)])
@pytest.mark.parametrize("start", [0, 1, 99, 12_345])
@pytest.mark.parametrize("weight", [0.0, 1.0, 7.5, 512.0, 10_000.0])
def test_as_many_as_a_weight_allows_and_not_one_more(
    weights: TokenWeights, start: int, weight: float
) -> None:
    most = weights.most(start, weight)
    assert weights.of(start, most) <= weight + 1e-6
    assert weights.of(start, most + 1) > weight - 1e-6


def test_a_long_context_leaves_room_for_fewer_tokens_and_always_for_one() -> None:
    taken = [TokenBudget(64, HEAVY).take(1000, start) for start in (0, 100, 1_000, 100_000)]
    assert taken == [51, 29, 5, 1]


def test_others_have_what_is_reserved_however_heavy_the_tokens_before_them() -> None:
    for start in range(0, 50_000, 997):
        budget = TokenBudget(20, TokenWeights(333.3))
        budget.take(1000, start, reserve=7)
        assert [budget.take(1, 10**6, reserve=6 - place) for place in range(7)] == [1] * 7


def test_a_streams_next_token_weighs_one() -> None:
    budget = TokenBudget(3, HEAVY)
    assert [budget.take(1, 10**6) for _ in range(4)] == [1, 1, 1, 0]
    assert math.isinf(PLAIN.balance)
