"""Turns in the adapter slots: who holds one, who gives way, and how long anybody waits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.adapters import AddedAdapters
from engine.errors import IntegrityError
from engine.fake_runner import FakeWeights
from engine.slot_turns import QUANTUM, SlotCounters, SlotTurns
from tests.unit.engine.slot_watch import SlotWatch

DIGESTS = "abcdefgh"


class Turns:
    """A table of slots driven by hand: all live adapters are wanted, and all that hold a slot use it."""

    def __init__(self, num_slots: int, live: str = "") -> None:
        added = AddedAdapters()
        for digest in DIGESTS:
            added.add(FakeWeights(digest))
        self.live: list[str] = []
        self.seconds = 0.0
        self.table = SlotTurns(num_slots, added, SlotCounters(), clock=lambda: self.seconds)
        self.watch = SlotWatch()
        self.enter(live)

    def enter(self, digests: str) -> None:
        for digest in digests:
            self.live.append(digest)
            self.table.enter(digest)

    def leave(self, digests: str) -> None:
        for digest in digests:
            self.live.remove(digest)
            self.table.leave(digest)

    def step(self, idle: str = "", wanted: str | None = None) -> dict[str, int]:
        """One step. idle: nothing is computed for these; wanted: of the live ones, if not all are."""
        self.seconds += 0.5
        self.table.begin_step(lambda: self.live if wanted is None else list(wanted))
        self.table.end_step(self.table.bound.keys() - set(idle))
        self.table.check_integrity(self.live)
        self.watch.look(self.table)
        return dict(self.table.bound)


def test_all_that_fit_keep_their_slots_and_nobody_is_asked_again() -> None:
    turns = Turns(2, "ab")
    first = turns.step()
    assert first == {"a": 1, "b": 2}
    assert not turns.table.is_short
    for _ in range(3 * QUANTUM):
        turns.table.begin_step(lambda: pytest.fail("all hold a slot"))
    assert turns.table.bound == first
    assert turns.table.counters.changes == 2


def test_slot_0_is_the_base_models() -> None:
    turns = Turns(1)
    turns.table.enter(None)
    turns.table.leave(None)
    assert turns.table.holds(None)
    assert turns.table.slot_of(None) == 0


def test_an_idle_adapter_keeps_its_slot_until_another_needs_it_the_longest_idle_first() -> None:
    turns = Turns(2, "ab")
    turns.step()
    turns.leave("b")
    turns.leave("a")
    turns.enter("ac")
    assert turns.step() == {"a": 1, "c": 2}
    turns.leave("ac")
    turns.enter("d")
    assert turns.step() == {"c": 2, "d": 1}
    assert turns.table.counters.changes == 4


def test_a_newcomer_takes_the_slot_of_one_that_has_had_its_turn() -> None:
    turns = Turns(1, "a")
    for _ in range(QUANTUM):
        assert turns.step() == {"a": 1}
    turns.enter("b")
    for _ in range(2):
        for digest in "ba":
            for _ in range(QUANTUM):
                assert turns.step() == {digest: 1}


def test_a_storm_of_one_leaves_the_other_a_turn_within_a_quantum() -> None:
    turns = Turns(1, "a" * 50)
    turns.step()
    turns.enter("b")
    for _ in range(QUANTUM - 1):
        assert turns.step() == {"a": 1}
        turns.enter("a" * 10)
    assert turns.step() == {"b": 1}


def test_the_line_is_served_first_come_first_served() -> None:
    turns = Turns(1, "a")
    for _ in range(QUANTUM):
        turns.step()
    turns.enter("cbd")
    held = [next(iter(turns.step())) for _ in range(5 * QUANTUM)]
    assert held == [digest for digest in "cbdac" for _ in range(QUANTUM)]


def test_a_turn_in_which_nothing_is_computed_is_over_at_once() -> None:
    turns = Turns(1, "ab")
    assert turns.step(idle="a") == {"a": 1}
    assert turns.step(idle="b") == {"b": 1}
    assert turns.step() == {"a": 1}
    assert turns.step() == {"a": 1}


def test_one_that_is_live_but_not_wanted_yet_gives_way_and_does_not_stand_in_line() -> None:
    turns = Turns(1, "ab")
    assert turns.step(wanted="b") == {"b": 1}
    assert not turns.table.is_short
    assert turns.step(wanted="a") == {"a": 1}


def test_who_stands_in_line_and_is_wanted_no_more_leaves_it() -> None:
    turns = Turns(1, "ab")
    turns.step()
    assert turns.table.is_short
    turns.leave("b")
    turns.step()
    assert not turns.table.is_short


def test_changes_are_told_once_and_all_anew_when_they_are_in_doubt() -> None:
    turns = Turns(2, "a")
    turns.step()
    told = [(change.slot, change.adapter) for change in turns.table.take_changes()]
    assert told == [(1, FakeWeights("a"))]
    assert turns.table.take_changes() == ()
    turns.table.distrust()
    told = [(change.slot, change.adapter) for change in turns.table.take_changes()]
    assert told == [(1, FakeWeights("a")), (2, None)]
    turns.leave("a")
    turns.table.vacate("a")
    turns.table.vacate("h")
    assert [(change.slot, change.adapter) for change in turns.table.take_changes()] == [(1, None)]
    turns.enter("b")
    assert turns.step() == {"b": 1}


def test_the_longest_wait_is_on_the_account_while_it_lasts() -> None:
    turns = Turns(1, "ab")
    counters = turns.table.counters
    for steps in range(QUANTUM):
        turns.step()
        assert (counters.longest_steps, counters.longest_s) == (steps, steps / 2)
    turns.step()
    assert (counters.longest_steps, counters.longest_s) == (QUANTUM, QUANTUM / 2)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda table: table._empty.append(1), "do not make the whole"),
        (lambda table: table.enter("a"), "adapters count"),
        (lambda table: table._idle.update(a=None), "is idle with live sequences"),
        (lambda table: table._line.update(a=table._line["b"]), "stands in line that holds a slot"),
    ],
)
def test_damage_is_noticed(harm: Any, message: str) -> None:
    turns = Turns(1, "ab")
    turns.step()
    harm(turns.table)
    with pytest.raises(IntegrityError, match=message):
        turns.table.check_integrity(turns.live)


@settings(max_examples=300)
@given(
    num_slots=st.integers(1, 4),
    history=st.lists(
        st.tuples(st.sets(st.sampled_from(DIGESTS), max_size=3), st.sets(st.sampled_from(DIGESTS))),
        max_size=80,
    ),
)
def test_nobody_stands_in_line_longer_than_the_bound(
    num_slots: int, history: list[tuple[set[str], set[str]]]
) -> None:
    turns = Turns(num_slots)
    for toggled, idle in history:
        for digest in sorted(toggled):
            (turns.leave if digest in turns.live else turns.enter)(digest)
        bound = turns.step(idle="".join(idle))
        assert len(bound) >= min(num_slots, len(turns.live))
        assert turns.table.is_short == (len(turns.live) > num_slots)
