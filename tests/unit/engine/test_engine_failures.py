"""Failures in the engine: of a row, of a step, of the engine's own state. Each ends what it must, no more."""

from typing import Any

import pytest

from engine.errors import (
    GenerationFailed,
    IntegrityError,
    InvalidParameter,
)
from engine.fake_runner import FakeRunner, expected
from engine.records import SamplingParams, StepPlan
from tests.unit.engine.fake_engines import all_blocks_are_free, engine_on, request, run_to_end, tokens


def test_a_failing_row_ends_one_request_and_leaves_no_prefix_behind() -> None:
    engine = engine_on(FakeRunner(poison=96))
    engine.add(request("good", range(40), 20))
    engine.add(request("bad", [*range(40), 96], 20))
    events = run_to_end(engine)
    last = events["bad"][-1]
    assert (last.finish, last.error, tokens(events["bad"])) == ("error", "logits are not finite", [])
    assert tokens(events["good"]) == expected(range(40), 20, seed=1, stop_ids=frozenset())
    assert engine.stats().failed_steps == 0


def test_a_failing_step_ends_its_batch_and_the_engine_goes_on() -> None:
    def fail_once(plan: StepPlan) -> None:
        runner.before_run = None
        raise RuntimeError("device lost")

    runner = FakeRunner(before_run=fail_once)
    engine = engine_on(runner, max_num_seqs=2)
    for index in range(3):
        engine.add(request(str(index), range(40)))
    events = engine.step()
    assert [(e.request_id, e.finish, e.error) for e in events] == [
        ("0", "error", "RuntimeError: device lost"),
        ("1", "error", "RuntimeError: device lost"),
    ]
    assert engine.stats().consecutive_failures == 1
    assert engine.stats().blocks_cached == 0
    assert tokens(run_to_end(engine)["2"]) == expected(range(40), 8, seed=1, stop_ids=frozenset())
    assert (engine.stats().failed_steps, engine.stats().consecutive_failures) == (1, 0)


def test_a_runner_that_returns_no_token_fails_that_request() -> None:
    class Forgetful(FakeRunner):
        def _row(self, seq: Any) -> Any:
            return None if seq.seq_id == 0 else super()._row(seq)

    engine = engine_on(Forgetful())
    engine.add(request("forgotten", range(5)))
    engine.add(request("kept", range(5)))
    events = run_to_end(engine)
    assert events["forgotten"][-1].error == "the runner returned no token"
    assert events["kept"][-1].finish == "length"


def test_recovery_fails_what_ran_and_keeps_what_waited() -> None:
    engine = engine_on(FakeRunner(), max_num_seqs=1)
    engine.add(request("running", range(40), 30))
    engine.add(request("waiting", range(40), 8))
    engine.add(request("aborted", range(40), 8))
    engine.step()
    engine.abort("aborted")
    engine._scheduler.pool.allocate(1)  # a leak
    with pytest.raises(IntegrityError):
        engine.step()
    events = engine.recover("a leak")
    assert [(event.request_id, event.finish) for event in events] == [
        ("aborted", "abort"),
        ("running", None),
        ("running", "error"),
    ]
    assert engine.stats().consecutive_failures == 1
    assert tokens(run_to_end(engine)["waiting"]) == expected(range(40), 8, seed=1, stop_ids=frozenset())
    assert all_blocks_are_free(engine)


def test_generate_raises_and_leaves_nothing_behind_when_a_request_fails() -> None:
    engine = engine_on(FakeRunner(poison=96))
    with pytest.raises(GenerationFailed, match="'1' failed: logits are not finite"):
        engine.generate([[1], [96], [2]], SamplingParams(max_tokens=40, ignore_eos=True))
    assert not engine.has_work
    with pytest.raises(InvalidParameter):
        engine.generate([[1], []], SamplingParams(max_tokens=4))
    assert not engine.has_work
    assert all_blocks_are_free(engine)


def test_lost_requests_are_noticed() -> None:
    engine = engine_on(FakeRunner())
    engine.add(request("r", range(5)))
    engine._scheduler.waiting.remove(next(iter(engine._scheduler.waiting)))
    with pytest.raises(IntegrityError, match="1 sequences are live; 0 run or wait"):
        engine.check_integrity()
