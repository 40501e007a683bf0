"""The closed loop around an engine, on a runner without a model."""

from bench.adapter_load import Arrival, Gaps, gaps
from bench.figures import Outcome
from bench.inprocess import drive
from bench.loads import Load, make_prompts
from bench.prefix import Cost, Gain
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake_runner import FakeRunner, FakeWeights


def fake_engine(**settings: int) -> Engine:
    runner = FakeRunner(vocab_size=30_000, num_blocks=256)
    return Engine(EngineConfig(model="unused", check_integrity=True, **settings), runner=runner)  # type: ignore[arg-type]


def test_every_request_gets_its_tokens_and_no_more_streams_run_than_asked_for() -> None:
    engine, running = fake_engine(), []
    load = Load(streams=3, requests=8, prompt_tokens=20, output_tokens=5)
    outcomes = drive(
        engine, load, make_prompts(load, seed=1), (), lambda: running.append(engine.stats().running)
    )
    assert len(outcomes) == len(running) == 8
    assert {(each.prompt_tokens, each.output_tokens, each.error) for each in outcomes} == {(20, 5, None)}
    assert max(running) <= 2
    assert not engine.has_work


def test_adapters_are_taken_in_turn() -> None:
    engine = fake_engine(adapter_slots=2)
    for digest in ("a", "b"):
        engine.add_adapter(FakeWeights(digest))
    load = Load(streams=2, requests=4, prompt_tokens=4, output_tokens=2)
    outcomes = drive(engine, load, make_prompts(load, seed=1), ("a", "b"), lambda: None)
    assert [each.error for each in outcomes] == [None] * 4


def test_a_failed_request_is_told() -> None:
    load = Load(streams=1, requests=1, prompt_tokens=4, output_tokens=2)
    prompts = make_prompts(load, seed=1)
    engine = Engine(
        EngineConfig(model="unused"),  # type: ignore[arg-type]
        runner=FakeRunner(vocab_size=30_000, poison=prompts[0][0]),
    )
    assert drive(engine, load, prompts, (), lambda: None)[0].error is not None


def test_gain_and_cost_are_medians_of_rounds() -> None:
    assert Gain((100.0, 200.0, 100.0), (10.0, 10.0, 30.0)).ratio == 0.1
    assert Cost((6.0, 8.0, 9.0), (5.0, 5.0, 5.0), (100.0, 100.0, 100.0)).part == 0.03


def test_gaps_are_told_apart_by_what_went_on_meanwhile() -> None:
    streams = [
        Outcome(0.0, 9.0, (1.0, 2.0, 4.5, 5.0, 9.0)),
        Outcome(0.0, 9.0, (1.0, 4.0, 5.0)),
    ]
    arrivals = [Arrival(called=4.2, loaded=4.4, first_token=4.4), Arrival(4.6, 4.8, 6.0)]
    assert gaps(streams, arrivals) == Gaps(median=2000.0, loading=2500.0, answering=4000.0, otherwise=3000.0)
    assert gaps(streams, []) == Gaps(median=1750.0, loading=0.0, answering=0.0, otherwise=4000.0)
