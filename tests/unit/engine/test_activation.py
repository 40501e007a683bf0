"""Where an adapter begins to hold in a prompt."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.activation import NEVER, activation


@pytest.mark.parametrize(
    ("prompt", "invocation", "position"),
    [
        ([1, 2, 3], [], 0),
        ([1, 2, 3], [1, 2, 3], 0),
        ([1, 2, 3], [3], 2),
        ([7, 8, 1, 7, 8, 2], [7, 8], 3),
        ([7, 7, 7, 7], [7, 7], 2),
        ([7, 8, 1, 7], [7, 8], 0),
        ([1, 2, 3], [4], NEVER),
        ([1, 2], [1, 2, 3], NEVER),
        ([3, 1, 2], [1, 2, 3], NEVER),
    ],
)
def test_an_adapter_holds_from_the_start_of_the_last_occurrence(
    prompt: list[int], invocation: list[int], position: int
) -> None:
    assert activation(prompt, invocation) == position
    assert activation(tuple(prompt), tuple(invocation)) == position


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=12)


@given(prompt=tokens, invocation=tokens)
def test_the_position_is_that_of_peft(prompt: list[int], invocation: list[int]) -> None:
    from peft import LoraConfig
    from peft.tuners.lora.variants import calculate_alora_offsets

    config = LoraConfig(alora_invocation_tokens=invocation, task_type="CAUSAL_LM")
    (offset,) = calculate_alora_offsets({"x": config}, "x", torch.tensor([prompt]))
    assert activation(prompt, invocation) == (NEVER if offset is None else len(prompt) - offset)
