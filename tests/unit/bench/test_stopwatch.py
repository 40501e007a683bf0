"""The stopwatch charges the innermost kind only, and leaves what it watched as it was."""

from collections.abc import Iterator

import pytest

from bench.stopwatch import Place, Stopwatch


class Work:
    """Every call of the clock below takes one second."""

    def outer(self) -> str:
        return self.inner() + self.inner()

    def inner(self) -> str:
        return "x"

    def broken(self) -> str:
        raise LookupError("no")


def ticking() -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += 1.0


PLACES = (Place(Work, "outer", "outer"), Place(Work, "inner", "inner"), Place(Work, "broken", "broken"))


def test_nested_calls_are_charged_once() -> None:
    stopwatch = Stopwatch(ticking().__next__)
    with stopwatch.watching(PLACES):
        assert Work().outer() == "xx"
    assert stopwatch.seconds == {"outer": 3.0, "inner": 2.0}
    stopwatch.reset()
    assert not stopwatch.seconds


def test_what_was_watched_is_put_back() -> None:
    before = dict(vars(Work))
    with pytest.raises(LookupError), Stopwatch().watching(PLACES):
        Work().broken()
    assert dict(vars(Work)) == before


def test_an_exception_passes_and_its_time_is_charged() -> None:
    stopwatch = Stopwatch(ticking().__next__)
    with stopwatch.watching(PLACES):
        with pytest.raises(LookupError):
            Work().broken()
        Work().inner()
    assert stopwatch.seconds == {"broken": 1.0, "inner": 1.0}
