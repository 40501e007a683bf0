"""The host cache counts its bytes and forgets the least recently used first."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.adapter_weights import AdapterWeights, LoraPair
from lora.host_cache import HostCache


def _weights(digest: str, units: int = 1) -> AdapterWeights:
    """Eight bytes a unit."""
    return AdapterWeights(digest, {"m": LoraPair(torch.zeros(1, units), torch.zeros(units, 1), 1.0)})


def test_the_least_recently_used_goes_first() -> None:
    cache = HostCache(16)
    for digest in "ab":
        cache.put(_weights(digest))
    assert cache.get("a") is not None
    cache.put(_weights("c"))
    assert cache.digests() == ["a", "c"]
    assert cache.get("b") is None


def test_asking_for_bytes_is_not_a_use() -> None:
    cache = HostCache(16)
    for digest in "ab":
        cache.put(_weights(digest))
    assert cache.bytes_of("a") == 8
    assert cache.bytes_of("absent") == 0
    cache.put(_weights("c"))
    assert cache.digests() == ["b", "c"]


def test_weights_larger_than_the_budget_are_not_kept_and_push_nothing_out() -> None:
    cache = HostCache(16)
    cache.put(_weights("a"))
    cache.put(_weights("big", units=3))
    assert cache.digests() == ["a"]


def test_dropping_reports_the_bytes_once() -> None:
    cache = HostCache(16)
    cache.put(_weights("a"))
    assert (cache.drop("a"), cache.drop("a"), cache.used_bytes) == (8, 0, 0)


@given(
    st.lists(st.tuples(st.sampled_from(["put", "get", "drop"]), st.sampled_from("abcd"), st.integers(1, 4)))
)
def test_the_budget_holds_after_any_history(steps: list[tuple[str, str, int]]) -> None:
    cache = HostCache(40)
    for kind, digest, units in steps:
        if kind == "put":
            cache.put(_weights(digest, units))
        elif kind == "get":
            cache.get(digest)
        else:
            cache.drop(digest)
        cache.check_integrity()
