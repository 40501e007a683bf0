"""Admission's terms: what is set aside for a sequence, and what is left for a newcomer."""

import pytest

from engine.blocks import BlockPool
from engine.config import Policy
from engine.policies import claim, room
from engine.records import Request, SamplingParams
from engine.sequence import Sequence


def _sequence(prompt_len: int, max_tokens: int, *, held: int = 0) -> Sequence:
    request = Request("r", (1,) * prompt_len, SamplingParams(max_tokens=max_tokens))
    seq = Sequence(0, request, max_tokens, frozenset(), 0, 0, 0.0)
    seq.table = list(range(held))
    return seq


@pytest.mark.parametrize(
    ("policy", "prompt_len", "max_tokens", "held", "claimed"),
    [
        ("max_utilization", 20, 100, 0, 3),
        ("max_utilization", 20, 100, 2, 1),
        ("max_utilization", 20, 2, 0, 2),
        ("guaranteed_no_evict", 20, 100, 0, 8),
        ("guaranteed_no_evict", 20, 100, 2, 6),
        ("guaranteed_no_evict", 20, 2, 2, 0),
    ],
)
def test_what_is_set_aside(policy: Policy, prompt_len: int, max_tokens: int, held: int, claimed: int) -> None:
    assert claim(policy, _sequence(prompt_len, max_tokens, held=held)) == claimed


def test_room_is_what_neither_claims_nor_the_watermark_take() -> None:
    pool = BlockPool(20)
    assert room("max_utilization", pool, [], watermark=5) == 20
    held = _sequence(20, 100)
    held.table = pool.allocate(2)
    assert room("max_utilization", pool, [held], watermark=5) == 20 - 2 - 1 - 5
    assert room("guaranteed_no_evict", pool, [held], watermark=5) == 20 - 2 - 6 - 5
