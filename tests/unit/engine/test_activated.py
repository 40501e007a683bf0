"""Adapters that hold from their invocation on: what they share with the base model, and what never."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import InvalidParameter
from engine.fake_runner import FakeRunner, FakeWeights, expected
from engine.records import Request, SamplingParams, StepPlan, TokenEvent
from tests.unit.engine.fake_engines import all_blocks_are_free, engine_on, request, run_to_end, tokens

MARK = (90, 91)
ACTIVATED = "sha256:activated"
HEAD = list(range(1, 41))
PROMPT = [*HEAD, *MARK, *range(50, 60)]
"""It holds from position 40 on, within the third block."""


def _engine(runner: FakeRunner | None = None, **settings: Any) -> Any:
    engine = engine_on(runner or FakeRunner(), **settings)
    engine.add_adapter(FakeWeights(ACTIVATED, MARK))
    return engine


def _alone(prompt: list[int], adapter: str | None = ACTIVATED, max_tokens: int = 8) -> list[int]:
    return expected(prompt, max_tokens, seed=1, adapter=adapter, invocation=MARK, stop_ids=frozenset())


def _ask(engine: Any, prompt: list[int], adapter: str | None, **more: Any) -> TokenEvent:
    """Run a request alone, check its tokens; its last event."""
    engine.add(request("r", prompt, adapter=adapter, **more))
    events = run_to_end(engine)["r"]
    assert tokens(events) == _alone(prompt, adapter)
    return events[-1]


def _cached(event: TokenEvent) -> int:
    assert event.stats is not None
    return event.stats.cached_tokens


def test_the_base_models_blocks_serve_an_activated_adapter_up_to_its_invocation() -> None:
    engine = _engine()
    _ask(engine, HEAD, None)
    assert _cached(_ask(engine, PROMPT, ACTIVATED)) == 32
    assert _cached(_ask(engine, PROMPT, ACTIVATED)) == len(PROMPT) - 1


def test_an_activated_adapters_blocks_serve_the_base_model_up_to_its_invocation() -> None:
    engine = _engine()
    _ask(engine, PROMPT, ACTIVATED)
    assert _cached(_ask(engine, PROMPT, None)) == 32
    assert _cached(_ask(engine, PROMPT, None)) == len(PROMPT) - 1
    assert _cached(_ask(engine, PROMPT, ACTIVATED)) == len(PROMPT) - 1


def test_another_salt_shares_nothing() -> None:
    engine = _engine()
    _ask(engine, HEAD, None, cache_salt="t")
    assert _cached(_ask(engine, PROMPT, ACTIVATED)) == 0


def test_two_activated_adapters_share_the_base_and_nothing_behind_it() -> None:
    engine = _engine()
    other = "sha256:other"
    engine.add_adapter(FakeWeights(other, MARK))
    _ask(engine, PROMPT, ACTIVATED)
    assert _cached(_ask(engine, PROMPT, other)) == 32


def test_the_same_tokens_under_another_invocation_are_another_history() -> None:
    engine = _engine()
    _ask(engine, PROMPT, ACTIVATED)
    again = [*PROMPT, *MARK, 3]  # the last occurrence counts: all before it is the base's now
    assert _cached(_ask(engine, again, ACTIVATED)) == 32
    assert _cached(_ask(engine, PROMPT, ACTIVATED)) == len(PROMPT) - 1


@pytest.mark.parametrize("position", [0, 1, 15, 16, 17, 32])
def test_it_holds_from_wherever_its_invocation_begins(position: int) -> None:
    engine = _engine()
    prompt = [*range(1, 1 + position), *MARK, *range(50, 75)]
    for _ in range(2):
        _ask(engine, prompt, ACTIVATED)
        _ask(engine, prompt, None)


def test_a_prompt_without_the_invocation_is_the_base_models() -> None:
    runner = FakeRunner()
    engine = _engine(runner)
    engine.add(request("r", HEAD, adapter=ACTIVATED))
    assert engine.adapters()[ACTIVATED].requests == 1
    assert tokens(run_to_end(engine)["r"]) == _alone(HEAD, None)
    assert runner.slots == {}
    assert engine.adapters()[ACTIVATED].requests == 0
    assert _cached(_ask(engine, HEAD, None)) == len(HEAD) - 1


def test_before_its_invocation_a_request_needs_no_slot() -> None:
    runner = FakeRunner()
    engine = _engine(runner, adapter_slots=1)
    engine.add_adapter(FakeWeights("sha256:a"))
    engine.add(request("a", range(5), 40, adapter="sha256:a"))
    engine.step()
    engine.add(request("r", PROMPT, adapter=ACTIVATED))
    engine.step()
    assert runner.plans[-1] == [(0, 5, 1), (1, 0, 40)]
    assert engine.stats().parked == 1
    events = run_to_end(engine)
    assert tokens(events["r"]) == _alone(PROMPT)
    other = expected(range(5), 40, seed=1, adapter="sha256:a", stop_ids=frozenset())
    assert tokens(events["a"]) == other[2:]


def test_one_that_is_found_cached_beyond_its_invocation_waits_for_its_slot_with_what_it_copied() -> None:
    runner = FakeRunner()
    engine = _engine(runner, adapter_slots=1)
    engine.add_adapter(FakeWeights("sha256:a"))
    for _ in range(3):
        _ask(engine, PROMPT, ACTIVATED)
        engine.add(request("a", range(5), adapter="sha256:a"))
        run_to_end(engine)
    assert engine.stats().prefix_copies > 0
    assert not any(plan == [] for plan in runner.plans)


def test_a_fork_with_another_invocation_begins_with_the_base_models_part_alone() -> None:
    engine = _engine()
    engine.add(request("parent", PROMPT, 30, adapter=ACTIVATED))
    begun = [*engine.step(), *engine.step()]
    own = [*PROMPT, *MARK, 5, 6]
    engine.fork("parent", request("child", own, adapter=ACTIVATED))
    events = run_to_end(engine)
    assert tokens([*begun, *events["parent"]]) == _alone(PROMPT, max_tokens=30)
    assert tokens(events["child"]) == _alone(own)
    with pytest.raises(InvalidParameter):
        engine.fork("parent", request("late", own, adapter=ACTIVATED))


@pytest.mark.parametrize("host", [0, 12])
def test_preempted_and_swapped_ones_come_back_right(host: int) -> None:
    runner = FakeRunner(num_blocks=9, num_host_blocks=host)
    engine = _engine(runner, adapter_slots=1, max_num_seqs=4, max_batched_tokens=16)
    engine.add_adapter(FakeWeights("sha256:a"))
    for number in range(6):
        adapter = (ACTIVATED, None, "sha256:a")[number % 3]
        engine.add(request(str(number), [*PROMPT[number:]], 50, adapter=adapter))
    events = run_to_end(engine)
    for number in range(6):
        adapter, prompt = (ACTIVATED, None, "sha256:a")[number % 3], PROMPT[number:]
        mark = MARK if adapter == ACTIVATED else ()
        want = expected(prompt, 50, seed=1, adapter=adapter, invocation=mark, stop_ids=frozenset())
        assert tokens(events[str(number)]) == want
    assert engine.stats().preemptions > 0
    assert all_blocks_are_free(engine)


def test_choices_and_beams_of_it_share_its_prompt() -> None:
    runner = FakeRunner()
    engine = _engine(runner, max_num_seqs=8)
    engine.add(request("n", PROMPT, adapter=ACTIVATED, n=3))
    engine.add(
        Request("beams", tuple(PROMPT), SamplingParams(8, temperature=0.0, n=2, beam_width=2), ACTIVATED)
    )
    events = run_to_end(engine)
    for index in range(3):
        own = [token for event in events["n"] if event.index == index for token in event.token_ids]
        assert own == expected(
            PROMPT, 8, seed=1 + index, adapter=ACTIVATED, invocation=MARK, stop_ids=frozenset()
        )
    assert {event.finish for event in events["beams"]} <= {"length", "stop"}


def test_a_step_that_fails_takes_along_who_waited_for_a_slot_with_copies_that_it_should_have_made() -> None:
    def fail_once(plan: StepPlan) -> None:
        runner.before_run = None
        raise RuntimeError("device lost")

    runner = FakeRunner()
    engine = _engine(runner, adapter_slots=1)
    engine.add_adapter(FakeWeights("sha256:a"))
    _ask(engine, PROMPT, ACTIVATED)
    engine.add(request("a", range(5), adapter="sha256:a"))
    run_to_end(engine)
    engine.add(request("b", range(5)))
    engine.add(request("parked", PROMPT, adapter=ACTIVATED))
    runner.before_run = fail_once
    copied = engine.stats().prefix_copies
    events = run_to_end(engine)
    assert engine.stats().prefix_copies > copied
    assert [event.finish for event in events["b"]] == ["error"]
    assert [event.finish for event in events["parked"]] == ["error"]
    assert all_blocks_are_free(engine)
    _ask(engine, PROMPT, ACTIVATED)


def test_a_fork_may_share_the_part_of_a_block_that_is_the_base_models_in_both() -> None:
    engine = _engine()
    early = [1, 2, 3, *MARK, *range(50, 60)]
    engine.add(request("parent", early, 30, adapter=ACTIVATED))
    begun = [*engine.step(), *engine.step()]
    own = [*early, *MARK, 5, 6]
    engine.fork("parent", request("child", own, adapter=ACTIVATED))
    engine.check_integrity()
    events = run_to_end(engine)
    assert tokens([*begun, *events["parent"]]) == _alone(early, max_tokens=30)
    assert tokens(events["child"]) == _alone(own)
