"""What bringing a preempted sequence back costs, learnt from steps and a probe of the link."""

from collections.abc import Sequence

import pytest

from engine.budget import TokenWeights
from engine.config import blocks_for
from engine.copy_probe import PROBE_BYTES, seconds_per_block
from engine.costs import MeasuredCosts
from engine.records import BlockCopy, SamplingParams, ScheduledSeq, StepPlan


def plan(*spans: tuple[int, int]) -> StepPlan:
    """A step that computes (start, count) of each sequence."""
    sampling = SamplingParams(max_tokens=1)
    return StepPlan(
        tuple(
            ScheduledSeq(i, [], 0, start, count, [], 0, False, sampling, 0)
            for i, (start, count) in enumerate(spans)
        )
    )


def test_nothing_is_swapped_before_a_step_was_seen() -> None:
    costs = MeasuredCosts(1e-9, TokenWeights())
    assert not costs.prefers_swap(1000, blocks_for(1000))
    costs.observe(plan((0, 16)), 1.0)
    assert costs.prefers_swap(1000, blocks_for(1000))


@pytest.mark.parametrize(("block_seconds", "swap"), [(0.079, True), (0.081, False)])
def test_the_copy_out_and_in_against_the_tokens_again(block_seconds: float, swap: bool) -> None:
    costs = MeasuredCosts(block_seconds, TokenWeights())
    costs.observe(plan((0, 50), (7, 50)), 1.0)  # 10 ms a token, 160 ms a block
    assert costs.prefers_swap(160, 10) == swap


def test_a_started_block_is_copied_whole() -> None:
    costs = MeasuredCosts(0.05, TokenWeights())
    costs.observe(plan((0, 100)), 1.0)
    assert [costs.prefers_swap(count, blocks_for(count)) for count in (16, 17, 20, 21)] == [
        True,
        False,
        False,
        True,
    ]


def test_context_makes_computing_again_dearer() -> None:
    costs = MeasuredCosts(0.1, TokenWeights(balance=100.0))
    costs.observe(plan((0, 1), (100, 50)), (1 + 50 + 50 + 12.25) * 0.01)
    assert costs.token_seconds == pytest.approx(0.01)
    assert [costs.prefers_swap(count, blocks_for(count)) for count in (32, 320)] == [False, True]


def test_small_steps_say_nothing_and_the_first_large_one_replaces_what_was_known() -> None:
    costs = MeasuredCosts(1.0, TokenWeights())
    costs.observe(plan((0, 10)), 10.0)
    costs.observe(plan((0, 400)), 4.0)
    assert costs.token_seconds == pytest.approx(0.01)
    costs.observe(plan(*[(9, 1)] * 8), 4.0)
    assert costs.token_seconds == pytest.approx(0.01)
    for _ in range(100):
        costs.observe(plan((0, 300)), 6.0)
    assert costs.token_seconds == pytest.approx(0.02)


class Copies:
    """Keeps what it is asked to copy."""

    def __init__(self) -> None:
        self.seen: list[BlockCopy] = []

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        self.seen += copies


def test_the_probe_copies_from_the_pool_to_host_memory() -> None:
    model = Copies()
    assert seconds_per_block(model, 5, 3, PROBE_BYTES // 7) > 0
    assert len(model.seen) == 14
    assert {copy.source for copy in model.seen} == set(range(5))
    assert {copy.target for copy in model.seen} == {5, 6, 7}
    assert seconds_per_block(Copies(), 5, 0, 1) == 0
