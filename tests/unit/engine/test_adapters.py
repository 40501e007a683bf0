"""Adapter slots: given out once, counted by request, vacated when unused."""

import pytest

from engine.adapters import AdapterSlots
from engine.errors import AdapterInUse, IntegrityError, NoFreeSlot, UnknownAdapter


def _loaded(*digests: str, slots: int = 3) -> AdapterSlots:
    adapters = AdapterSlots(slots)
    for digest in digests:
        adapters.next_empty()
        adapters.occupy(digest, 100)
    return adapters


def test_slot_0_is_no_adapter_and_never_given_out() -> None:
    adapters = _loaded("a", "b", "c")
    assert sorted(info.slot for info in adapters.snapshot().values()) == [1, 2, 3]
    assert adapters.pin(None) == 0
    adapters.unpin(None)


def test_all_slots_taken() -> None:
    with pytest.raises(NoFreeSlot, match="all 1 adapter slots are taken"):
        _loaded("a", slots=1).next_empty()
    with pytest.raises(NoFreeSlot):
        AdapterSlots(0).next_empty()


def test_an_adapter_in_use_stays_until_its_last_request_ends() -> None:
    adapters = _loaded("a")
    assert adapters.pin("a") == adapters.pin("a") == adapters.slot_of("a")
    with pytest.raises(AdapterInUse, match="serves 2 live requests"):
        adapters.check_unused("a")
    adapters.check_integrity(["a", None, "a"])
    adapters.unpin("a")
    adapters.unpin("a")
    slot = adapters.check_unused("a")
    adapters.vacate("a")
    assert adapters.slot_of("a") is None
    assert adapters.next_empty() == slot


def test_an_unknown_digest_is_refused() -> None:
    adapters = _loaded("a")
    for act in (adapters.pin, adapters.check_unused):
        with pytest.raises(UnknownAdapter, match="'b' is not loaded; loaded: a"):
            act("b")


def test_a_wrong_count_is_noticed() -> None:
    adapters = _loaded("a")
    adapters.pin("a")
    with pytest.raises(IntegrityError, match="counts 1 requests; 0 refer to it"):
        adapters.check_integrity([])


def test_a_lost_slot_is_noticed() -> None:
    adapters = _loaded("a", slots=2)
    adapters._empty.clear()
    with pytest.raises(IntegrityError, match="do not make the whole"):
        adapters.check_integrity([])
