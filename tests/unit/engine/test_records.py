"""The plain records that cross the engine's edges."""

import dataclasses

import pytest

from engine import records
from engine.records import Request, SamplingParams, ScheduledSeq, StepPlan


def _share(count: int, token_ids: list[int]) -> ScheduledSeq:
    return ScheduledSeq(
        seq_id=0,
        token_ids=token_ids,
        prompt_len=3,
        start=0,
        count=count,
        block_table=[0],
        adapter_slot=0,
        samples=True,
        sampling=SamplingParams(max_tokens=4),
        seed=0,
    )


def test_all_records_are_frozen() -> None:
    for name in records.__all__:
        record = getattr(records, name)
        if dataclasses.is_dataclass(record):
            assert record.__dataclass_params__.frozen, name  # type: ignore[attr-defined]  # not in the stubs


def test_a_request_is_for_the_base_model_unless_it_says_otherwise() -> None:
    request = Request("r", (1, 2), SamplingParams(max_tokens=1))
    assert (request.adapter, request.cache_salt, request.priority) == (None, "", 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.id = "s"  # type: ignore[misc]  # that it cannot be assigned is the point


def test_a_plan_counts_its_tokens_and_a_share_its_outputs() -> None:
    shares = (_share(3, [1, 2, 3]), _share(1, [1, 2, 3, 4, 5]))
    assert StepPlan(shares).num_tokens == 4
    assert [share.num_outputs for share in shares] == [0, 2]
