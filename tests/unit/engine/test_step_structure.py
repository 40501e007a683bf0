"""What a step may consist of: its budget, every running stream in it, and work that only the running cost."""

import gc
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from engine.config import BLOCK_SIZE
from engine.engine import Engine
from engine.fake_runner import FakeRunner, fake_engine
from engine.records import Request, SamplingParams, StepPlan
from tests.unit.engine.fake_engines import run_to_end


def _request(name: str, prompt_len: int, max_tokens: int, **about: int) -> Request:
    prompt = tuple((sum(map(ord, name)) + 7 * i) % 96 + 1 for i in range(prompt_len))
    return Request(name, prompt, SamplingParams(max_tokens=max_tokens, seed=1, ignore_eos=True), **about)  # type: ignore[arg-type]


@pytest.mark.parametrize("balance", [float("inf"), 2000.0])
def test_a_long_prompt_takes_its_share_of_each_step_and_no_stream_waits(balance: float) -> None:
    plans: list[StepPlan] = []
    runner = FakeRunner(
        num_blocks=1200,
        model_len=17_000,
        attention_balance=balance,
        before_run=lambda plan: plans.append(plan),
    )
    engine = fake_engine(runner, max_batched_tokens=512, check_integrity=False)
    for stream in range(8):
        engine.add(_request(f"stream {stream}", 20, 1000))
    engine.step()
    plans.clear()
    engine.add(_request("long", 16_000, 1))
    ended = False
    while not ended:
        events = engine.step()
        assert {f"stream {stream}" for stream in range(8)} <= {event.request_id for event in events}
        ended = any(event.request_id == "long" for event in events)
    for plan in plans:
        assert plan.num_tokens <= 512
        *streams, long = sorted(plan.seqs, key=lambda share: share.count)
        assert [share.count for share in streams] == [1] * 8
        assert long.count * (1 + long.start / balance) <= 512 - 8
    weight = 16_000 + 16_000 * 15_999 / 2 / balance
    assert weight / (512 - 8) <= len(plans) <= 1.1 * weight / (512 - 8) + 1


def _calls(action: Callable[[], object]) -> int:
    """Calls of Python and C functions that an action makes."""
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # whoever listens to it is called at its own times
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def _calls_of_steps(finished: int, waiting: int) -> int:
    """Calls of 16 steps that decode 4 running requests, after and beside others."""
    runner = FakeRunner(num_blocks=4 * 8)
    engine: Engine = fake_engine(
        runner, max_num_seqs=4, max_waiting=2000, prefix_cache=False, check_integrity=False
    )
    for number in range(finished):
        engine.add(_request(f"finished {number}", 3, 1))
    run_to_end(engine)
    for number in range(4 + waiting):
        engine.add(_request(f"{number}", 3, 100))
    for _ in range(4):
        engine.step()
    assert (engine.stats().running, engine.stats().waiting) == (4, waiting)
    return _calls(lambda: [engine.step() for _ in range(BLOCK_SIZE)])


def test_a_step_costs_nothing_for_requests_that_have_finished_or_wait() -> None:
    few = _calls_of_steps(finished=4, waiting=1)
    assert _calls_of_steps(finished=400, waiting=1) == few
    assert _calls_of_steps(finished=4, waiting=400) == few
