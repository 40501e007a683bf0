"""Prefixes and adapters in the engine: what is shared, what never is, what is in use."""

from typing import Any

import pytest

from engine.errors import (
    AdapterInUse,
    NoAdapterSlots,
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
        engine.add_adapter(FakeWeights(digest))
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
        engine.add_adapter(FakeWeights(digest))
        engine.add(request("r", range(60), adapter=digest))
        completion = tokens(run_to_end(engine)["r"])
        assert completion == expected(range(60), 8, seed=1, adapter=digest, stop_ids=frozenset())
        engine.remove_adapter(digest)


def test_adapters_mix_in_one_step() -> None:
    runner = FakeRunner()
    engine = engine_on(runner)
    adapters = [None, "sha256:a", "sha256:b"]
    for digest in adapters[1:]:
        engine.add_adapter(FakeWeights(str(digest)))
    for index in range(6):
        engine.add(request(str(index), range(9), adapter=adapters[index % 3]))
    events = run_to_end(engine)
    assert len(runner.plans[0]) == 6
    for index in range(6):
        alone = expected(range(9), 8, seed=1, adapter=adapters[index % 3], stop_ids=frozenset())
        assert tokens(events[str(index)]) == alone


def test_adapters_are_added_once_and_removed_when_unused() -> None:
    runner = FakeRunner()
    engine = engine_on(runner)
    for digest in ("sha256:a", "sha256:b", "sha256:c", "sha256:a"):
        engine.add_adapter(FakeWeights(digest))
    assert set(engine.adapters()) == {"sha256:a", "sha256:b", "sha256:c"}
    engine.add(request("r", range(5), adapter="sha256:a"))
    for _ in range(2):
        assert engine.adapters()["sha256:a"].requests == 1
        with pytest.raises(AdapterInUse):
            engine.remove_adapter("sha256:a")
        engine.step()
    assert runner.slots == {1: FakeWeights("sha256:a")}
    run_to_end(engine)
    assert engine.adapters()["sha256:a"].slot == 1
    assert engine.remove_adapter("sha256:a") == len("sha256:a")
    assert runner.slots == {}
    with pytest.raises(UnknownAdapter):
        engine.remove_adapter("sha256:a")
    with pytest.raises(UnknownAdapter):
        engine.add(request("r", range(5), adapter="sha256:a"))
    assert engine.remove_adapter("sha256:c") == len("sha256:c")
    assert set(engine.adapters()) == {"sha256:b"}


def test_an_engine_without_slots_takes_no_adapters() -> None:
    engine = engine_on(FakeRunner(), adapter_slots=0)
    with pytest.raises(
        NoAdapterSlots, match="adapter_slots is 0; at least 1 is needed for adapter 'sha256:a'"
    ):
        engine.add_adapter(FakeWeights("sha256:a"))
    assert engine.adapters() == {}


def test_what_is_not_known_of_slots_after_a_failed_step_is_told_anew() -> None:
    runner = FakeRunner()
    engine = engine_on(runner)
    for digest in ("sha256:a", "sha256:b"):
        engine.add_adapter(FakeWeights(digest))

    def fail(plan: object) -> None:
        raise RuntimeError("device lost")

    runner.before_run = fail
    engine.add(request("lost", range(5), adapter="sha256:a"))
    assert engine.step()[0].finish == "error"
    runner.before_run = None
    engine.add(request("b", range(5), adapter="sha256:b"))
    engine.step()
    assert runner.slots == {1: FakeWeights("sha256:a"), 2: FakeWeights("sha256:b")}
    engine.recover("a bug")
    for digest in ("sha256:a", "sha256:b"):
        engine.remove_adapter(digest)
    assert runner.slots == {}
