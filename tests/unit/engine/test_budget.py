"""The token budget of a step."""

from engine.budget import TokenBudget


def test_takes_what_is_wanted_until_nothing_is_left() -> None:
    budget = TokenBudget(10)
    assert [budget.take(4), budget.take(4), budget.take(4), budget.take(4)] == [4, 4, 2, 0]


def test_leaves_what_is_reserved_for_others() -> None:
    budget = TokenBudget(10)
    assert budget.take(100, reserve=3) == 7
    assert budget.take(1, reserve=3) == 0
    assert budget.take(1, reserve=0) == 1


def test_a_refund_can_be_taken_again() -> None:
    budget = TokenBudget(4)
    budget.take(4)
    budget.refund(3)
    assert budget.take(9) == 3
