"""Added adapters: named by requests, counted, let go of when unused."""

import pytest

from engine.adapters import AddedAdapters
from engine.errors import AdapterInUse, IntegrityError, UnknownAdapter
from engine.fake_runner import FakeWeights
from engine.records import AdapterInfo


def _added(*digests: str) -> AddedAdapters:
    adapters = AddedAdapters()
    for digest in digests:
        adapters.add(FakeWeights(digest))
    return adapters


def test_the_same_digest_again_changes_nothing() -> None:
    adapters = _added("a")
    first = adapters.pin("a")
    adapters.add(FakeWeights("a"))
    assert adapters.get("a") is first
    assert adapters.snapshot({}) == {"a": AdapterInfo("a", None, 1, 1)}
    assert len(adapters) == 1


def test_a_snapshot_tells_who_holds_a_slot() -> None:
    slots = {digest: info.slot for digest, info in _added("a", "b").snapshot({"b": 7}).items()}
    assert slots == {"a": None, "b": 7}


def test_an_adapter_in_use_stays_until_its_last_request_ends() -> None:
    adapters = _added("a", "long")
    for _ in range(2):
        adapters.pin("a")
    with pytest.raises(AdapterInUse, match="serves 2 live requests"):
        adapters.remove("a")
    adapters.check_integrity(["a", None, "a"])
    for _ in range(2):
        adapters.unpin("a")
    assert adapters.remove("a") == 1
    assert adapters.remove("long") == 4
    assert len(adapters) == 0


def test_an_unknown_digest_is_refused() -> None:
    adapters = _added("a")
    for act in (adapters.pin, adapters.get, adapters.remove):
        with pytest.raises(UnknownAdapter, match="'b' is not added; added: a"):
            act("b")


def test_a_message_lists_few_of_many() -> None:
    with pytest.raises(UnknownAdapter, match="added: 100, 101, 102, 103, 104, 105, 106, 107 and 192 more"):
        _added(*map(str, range(100, 300))).get("b")


def test_a_wrong_count_is_noticed() -> None:
    adapters = _added("a")
    adapters.pin("a")
    with pytest.raises(IntegrityError, match="counts 1 requests; 0 refer to it"):
        adapters.check_integrity([])
