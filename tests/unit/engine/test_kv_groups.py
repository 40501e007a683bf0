"""Layers in groups that share a block: how many groups, and that no more is wasted than promised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.block_need import UNLIMITED, BlockNeed
from engine.config import blocks_for
from engine.kv_groups import MAX_WASTE, Window, group_layers


@pytest.mark.parametrize(
    ("windows", "groups", "depth"),
    [
        ([None] * 30, (None,), 30),
        ([4096] * 32, (4096,), 32),
        ([4096, None] * 13, (None, 4096), 13),  # Gemma 2 2B; GPT-OSS alternates likewise
        (([512] * 5 + [None]) * 4 + [512] * 2, (None, *[512] * 6), 4),  # Gemma 3 1B
        (([1024] * 5 + [None]) * 8, (None, *[1024] * 5), 8),  # Gemma 3 12B
        (([1024] * 5 + [None]) * 10 + [1024] * 2, (None, *[1024] * 5), 11),  # Gemma 3 27B
        ([None] * 21 + [4096] * 7, (None, None, None, 4096), 7),  # Qwen2 with max_window_layers
    ],
)
def test_groups_of_models_people_run(windows: list[Window], groups: tuple[Window, ...], depth: int) -> None:
    found = group_layers(windows)
    assert (found.windows, found.depth) == (groups, depth)


@given(st.lists(st.sampled_from([None, 512, 1024]), min_size=1, max_size=70))
def test_every_layer_has_a_place_and_no_window_wastes_more_than_the_bound(windows: list[Window]) -> None:
    found = group_layers(windows)
    assert len(set(found.places)) == len(windows)
    assert all(0 <= place < found.depth for _, place in found.places)
    assert [found.windows[group] for group, _ in found.places] == windows
    for window in set(windows):
        room = found.windows.count(window) * found.depth
        assert room - windows.count(window) <= MAX_WASTE * room


@given(
    windows=st.lists(st.sampled_from([None, 16, 50, 500]), min_size=1, max_size=40),
    lengths=st.lists(st.integers(1, 3000), min_size=1, max_size=20),
)
def test_bytes_held_beyond_what_layers_see_stay_under_the_stated_bound(
    windows: list[Window], lengths: list[int]
) -> None:
    groups = group_layers(windows)
    need = BlockNeed(groups.windows, step_tokens=1)
    held = sum(need.held(blocks_for(length), length) for length in lengths) * 16 * groups.depth
    seen = sum(
        length if window is None else min(window - 1, length) for window in windows for length in lengths
    )
    ends = 2 * 16 * groups.depth * len(groups.windows) * len(lengths)
    assert seen <= held <= seen / (1 - MAX_WASTE) + ends


def test_a_hybrid_holds_whole_texts_in_one_group_and_windows_in_the_others() -> None:
    need = BlockNeed((None, 32, 32), step_tokens=16)
    assert need.held(blocks_for(1000), 1000) == 63 + 2 * 3
    assert need.most(blocks_for(1000)) == 63 + 2 * 4
    assert (need.lasting(63), need.passing(63, 1000)) == (63, 6)
    assert need.rows_within(71) == 63
    assert BlockNeed((32, 32), step_tokens=16).rows_within(8) == UNLIMITED
    assert BlockNeed((32, 32), step_tokens=16).rows_within(7) == 3


@given(
    windows=st.sampled_from([(None,), (1,), (20,), (None, 33), (None, 17, 40), (50, 20)]),
    steps=st.lists(st.integers(1, 40), min_size=1, max_size=30),
)
def test_no_more_is_held_than_the_most_that_is_reckoned(
    windows: tuple[Window, ...], steps: list[int]
) -> None:
    need = BlockNeed(windows, step_tokens=40)
    whole, computed = blocks_for(sum(steps)), 0
    for count in steps:
        rows = blocks_for(computed + count)
        held = need.held(rows, computed)
        assert held == len(need.places(rows, computed))
        assert held <= need.most(whole, computed) <= need.most(whole)
        computed += count
