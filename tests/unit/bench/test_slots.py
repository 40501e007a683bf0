"""Timed arrivals on an engine with fewer slots than adapters."""

from __future__ import annotations

from itertools import pairwise

from bench.figures import summarise
from bench.loads import Load
from bench.slots import STORM_STREAMS, offer, poisson, row, storm
from engine import Engine
from engine.fake_runner import FakeRunner, FakeWeights, fake_engine

LOAD = Load(streams=1, requests=1, prompt_tokens=5, output_tokens=3, vocabulary=1_050)
DIGESTS = [f"sha256:{number}" for number in range(4)]


def _engine(slots: int) -> Engine:
    engine = fake_engine(FakeRunner(vocab_size=2_000), adapter_slots=slots)
    for digest in DIGESTS:
        engine.add_adapter(FakeWeights(digest))
    return engine


def test_arrivals_come_at_the_same_moments_for_any_adapters() -> None:
    few, many = (poisson(200, 0.5, LOAD, DIGESTS[:count], seed=1) for count in (1, 4))
    assert [arrival.due for arrival in few] == [arrival.due for arrival in many]
    assert [arrival.prompt for arrival in few] == [arrival.prompt for arrival in many]
    assert {arrival.adapter for arrival in many} == set(DIGESTS)
    assert 60 < len(few) < 140
    assert all(earlier.due < later.due < 0.5 for earlier, later in pairwise(few))


def test_every_arrival_is_answered_and_its_time_runs_from_when_it_was_due() -> None:
    engine, arrivals = _engine(2), poisson(300, 0.2, LOAD, DIGESTS, seed=2)
    outcomes = offer(engine, arrivals)
    assert sorted(outcome.sent for outcome in outcomes) == [arrival.due for arrival in arrivals]
    assert all(outcome.output_tokens == 3 and outcome.ttft_s > 0 for outcome in outcomes)
    name, *_, changes, _ = row("x", summarise(outcomes), engine, 0)
    assert (name, int(changes)) == ("x", engine.stats().slot_changes)


def test_in_a_storm_the_other_adapter_is_answered_too() -> None:
    found = storm(_engine(1), LOAD, 0.4, DIGESTS[0], DIGESTS[1])
    assert len(found[DIGESTS[0]]) > STORM_STREAMS
    assert found[DIGESTS[1]]
    assert all(outcome.error is None for outcomes in found.values() for outcome in outcomes)
