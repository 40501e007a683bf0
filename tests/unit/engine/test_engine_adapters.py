"""Prefixes and adapters in the engine: what is shared, what never is, what is in use."""

from typing import Any

import pytest

from engine.errors import (
    AdapterInUse,
    NoFreeSlot,
    UnknownAdapter,
)
from engine.fake_runner import FakeRunner, FakeWeights, expected
from tests.unit.engine.fake_engines import engine_on, request, run_to_end, tokens


def test_prefixes_are_found_again_and_reported() -> None:
    engine = engine_on(FakeRunner())
    for cached in (0, 59):
        engine.add(request("r", range(60)))
        events = run_to_end(engine)["r"]
        assert events[-1].stats is not None
        assert events[-1].stats.cached_tokens == cached
        assert tokens(events) == expected(range(60), 8, seed=1, stop_ids=frozenset())
    assert (engine.stats().prefix_queries, engine.stats().prefix_hits) == (120, 59)
    assert engine.stats().blocks_cached > 0


def test_prefixes_are_shared_only_under_the_same_adapter_and_salt() -> None:
    engine = engine_on(FakeRunner())
    for digest in ("sha256:a", "sha256:b"):
        engine.load_adapter(FakeWeights(digest))
    owners: list[dict[str, Any]] = [
        {"adapter": "sha256:a"},
        {"adapter": "sha256:b"},
        {"adapter": None},
        {"adapter": None, "cache_salt": "sha256:a"},
        {"adapter": "sha256:a", "cache_salt": "t"},
    ]
    for cached in (0, 59):
        for owner in owners:
            engine.add(request("r", range(60), **owner))
            events = run_to_end(engine)["r"]
            assert events[-1].stats is not None
            assert events[-1].stats.cached_tokens == cached
            alone = expected(range(60), 8, seed=1, adapter=owner["adapter"], stop_ids=frozenset())
            assert tokens(events) == alone


def test_the_prefix_cache_can_be_off() -> None:
    engine = engine_on(FakeRunner(), prefix_cache=False)
    for _ in range(2):
        engine.add(request("r", range(60)))
        last = run_to_end(engine)["r"][-1]
        assert last.stats is not None
        assert last.stats.cached_tokens == 0
    assert engine.stats().blocks_cached == 0


def test_a_reloaded_slot_never_serves_what_was_cached_for_another_adapter() -> None:
    engine = engine_on(FakeRunner(), adapter_slots=1)
    for digest in ("sha256:a", "sha256:b", "sha256:a"):
        engine.load_adapter(FakeWeights(digest))
        engine.add(request("r", range(60), adapter=digest))
        completion = tokens(run_to_end(engine)["r"])
        assert completion == expected(range(60), 8, seed=1, adapter=digest, stop_ids=frozenset())
        engine.unload_adapter(digest)


def test_adapters_mix_in_one_step() -> None:
    runner = FakeRunner()
    engine = engine_on(runner)
    adapters = [None, "sha256:a", "sha256:b"]
    for digest in adapters[1:]:
        engine.load_adapter(FakeWeights(str(digest)))
    for index in range(6):
        engine.add(request(str(index), range(9), adapter=adapters[index % 3]))
    events = run_to_end(engine)
    assert len(runner.plans[0]) == 6
    for index in range(6):
        alone = expected(range(9), 8, seed=1, adapter=adapters[index % 3], stop_ids=frozenset())
        assert tokens(events[str(index)]) == alone


def test_slots_are_loaded_once_and_unloaded_when_unused() -> None:
    engine = engine_on(FakeRunner())
    assert engine.load_adapter(FakeWeights("sha256:a")) == engine.load_adapter(FakeWeights("sha256:a")) == 1
    assert engine.load_adapter(FakeWeights("sha256:b")) == 2
    with pytest.raises(NoFreeSlot):
        engine.load_adapter(FakeWeights("sha256:c"))
    engine.add(request("r", range(5), adapter="sha256:a"))
    assert engine.adapters()["sha256:a"].requests == 1
    with pytest.raises(AdapterInUse):
        engine.unload_adapter("sha256:a")
    engine.step()
    with pytest.raises(AdapterInUse):
        engine.unload_adapter("sha256:a")
    run_to_end(engine)
    assert engine.unload_adapter("sha256:a") == len("sha256:a")
    with pytest.raises(UnknownAdapter):
        engine.unload_adapter("sha256:a")
    assert engine.load_adapter(FakeWeights("sha256:c")) == 1
    assert set(engine.adapters()) == {"sha256:b", "sha256:c"}


def test_a_slot_whose_load_fails_stays_empty() -> None:
    class Refusing(FakeRunner):
        def load_adapter(self, slot: int, weights: object) -> int:
            raise MemoryError("no room")

    engine = engine_on(Refusing(), adapter_slots=1)
    with pytest.raises(MemoryError):
        engine.load_adapter(FakeWeights("sha256:a"))
    assert engine.adapters() == {}
    engine.check_integrity()
