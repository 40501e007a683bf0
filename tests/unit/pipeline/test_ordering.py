"""The order of training rows: a matter of the seed alone, with both labels in sight everywhere."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.ordering import spread, whole_batches


@dataclass(frozen=True)
class Row:
    id: str
    label: bool


def sorted_by_label(desirable: int, undesirable: int) -> list[Row]:
    return [Row(f"up{n}", True) for n in range(desirable)] + [
        Row(f"down{n}", False) for n in range(undesirable)
    ]


def test_the_same_seed_gives_the_same_order_however_the_rows_arrive() -> None:
    rows = sorted_by_label(30, 50)
    assert spread(rows, 7) == spread(rows[::-1], 7)


def test_another_seed_gives_another_order_of_the_same_rows() -> None:
    rows = sorted_by_label(30, 50)
    one, other = spread(rows, 1), spread(rows, 2)
    assert one != other
    assert set(one) == set(other) == set(rows)


@pytest.mark.parametrize(("desirable", "undesirable"), [(50, 50), (8, 120), (100, 7), (10, 150)])
def test_every_window_of_16_has_both_labels(desirable: int, undesirable: int) -> None:
    ordered = spread(sorted_by_label(desirable, undesirable), 3)
    for start in range(len(ordered) - 15):
        assert {row.label for row in ordered[start : start + 16]} == {True, False}


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 5))
def test_no_row_is_lost_and_no_prefix_leans_to_one_label(desirable: int, undesirable: int, seed: int) -> None:
    ordered = spread(sorted_by_label(desirable, undesirable), seed)
    assert sorted(row.id for row in ordered) == sorted(
        row.id for row in sorted_by_label(desirable, undesirable)
    )
    for length in range(1, len(ordered) + 1):
        expected = length * desirable / len(ordered)
        assert abs(sum(row.label for row in ordered[:length]) - expected) <= 1


@pytest.mark.parametrize(("rows", "kept"), [(16, 16), (17, 16), (18, 18), (23, 23), (25, 24), (0, 0)])
def test_a_last_batch_of_one_is_left_out(rows: int, kept: int) -> None:
    assert len(whole_batches(sorted_by_label(rows, 0), 8)) == kept
