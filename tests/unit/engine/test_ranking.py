"""The likeliest of a row and the place of one token among them, beside plain sorting."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.ranking import joined, likeliest, rank


@given(
    values=st.lists(st.sampled_from([-math.inf, -2.0, 0.0, 0.5, 7.0]), min_size=1, max_size=300),
    count=st.integers(0, 25),
)
def test_the_lower_id_comes_first_among_equals(values: list[float], count: int) -> None:
    want = sorted(range(len(values)), key=lambda place: (-values[place], place))[:count]
    assert likeliest(np.array(values, np.float32), count).tolist() == want


def test_what_is_asked_for_more_does_not_change_what_comes_first() -> None:
    row = torch.randn(5000).round(decimals=1).numpy()
    assert likeliest(row, 3).tolist() == likeliest(row, 20).tolist()[:3]


def test_ranks_and_log_probabilities_are_those_of_the_raw_softmax() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    found = rank(logits, [0, 3], 2)
    want = logits.log_softmax(-1)
    assert found.logprobs == pytest.approx([float(want[0, 0]), float(want[1, 3])])
    assert found.ranks == [3, 1]
    assert [[token for token, _ in row] for row in found.top] == [[1, 2], [0, 1]]
    assert found.of(0, 0, 1).top == ((1, pytest.approx(float(want[0, 1]))),)
    assert joined([found, found]).ranks == [3, 1, 3, 1]


def test_a_row_that_is_not_finite_has_no_number() -> None:
    found = rank(torch.tensor([[math.nan, 1.0, 2.0], [0.0, 1.0, 2.0]]), [1, 1], 2)
    assert [math.isnan(value) for value in found.logprobs] == [True, False]
