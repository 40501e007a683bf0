"""A run begins when the run before has let go of the processors."""

from collections.abc import Callable

from bench.settling import Ticks, read_ticks, settle


def a_machine(*spent: int) -> Callable[[], Ticks]:
    """Spends so many of each 100 ticks, and the last for ever after."""
    state = [0, 0]
    left = list(spent)

    def ticks() -> Ticks:
        state[0] += left.pop(0) if len(left) > 1 else left[0]
        state[1] += 100
        return state[0], state[1]

    return ticks


def test_a_machine_at_rest_is_waited_for_once() -> None:
    assert settle(pause_s=0.0, ticks=a_machine(0, 3))


def test_waits_while_a_server_still_spins() -> None:
    machine = a_machine(0, 90, 80, 5)
    assert settle(pause_s=0.0, ticks=machine)
    assert machine()[1] == 500


def test_a_machine_that_never_rests_is_told() -> None:
    assert not settle(0.01, pause_s=0.0, ticks=a_machine(90))


def test_ticks_of_this_machine_grow() -> None:
    first, second = read_ticks(), read_ticks()
    assert 0 < first[0] < first[1]
    assert second[1] >= first[1]
