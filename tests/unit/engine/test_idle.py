"""The order in which cached blocks are given up."""

from engine.idle import MAX_WEIGHT, IdleBlocks


def _order(idle: IdleBlocks) -> list[int]:
    return [idle.take() for _ in range(len(idle))]


def test_without_reuse_the_least_recently_used_goes_first() -> None:
    idle = IdleBlocks(8)
    for block in (3, 1, 2):
        idle.add(block, 0)
    idle.add(3, 0)
    assert _order(idle) == [1, 2, 3]


def test_reuse_counts_as_later_use_up_to_a_limit() -> None:
    idle = IdleBlocks(12)
    idle.add(0, 1)
    idle.add(1, 1000)
    for block in range(2, 7):
        idle.add(block, 0)
    assert _order(idle) == [2, 0, 3, 4, 5, 6, 1]
    idle.add(0, 1000)
    later = MAX_WEIGHT * 3 + 1
    for block in range(1, later + 1):
        idle.add(block, 0)
    assert _order(idle).index(0) < later


def test_taken_back_blocks_are_passed_over_and_their_traces_cleared() -> None:
    idle = IdleBlocks(4)
    for _ in range(100):
        idle.add(1, 0)
        idle.remove(1)
    idle.add(2, 0)
    assert (1 in idle, 2 in idle, list(idle)) == (False, True, [2])
    assert len(idle._heap) <= 25
    assert idle.take() == 2
