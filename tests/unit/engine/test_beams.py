"""Beam search in the engine: its rules by hand, its blocks, the same result whatever happens around it."""

from typing import Any

import pytest

from engine.beams import BeamSearch, Hypothesis
from engine.engine import Engine
from engine.errors import InvalidParameter, TooLargeForPool
from engine.fake_runner import FakeRunner, fake_engine
from engine.records import Request, SamplingParams, TokenEvent
from engine.sequence import Sequence
from tests.unit.engine.fake_engines import all_blocks_are_free, engine_on, request, run_to_end, tokens

PROMPT = [(7 * i) % 90 + 1 for i in range(40)]
BEAMS: dict[str, Any] = {"temperature": 0.0, "beam_width": 3, "n": 3}


def found_alone(
    prompt: list[int], max_tokens: int, **about: Any
) -> list[tuple[tuple[int, ...], float | None]]:
    """What a search finds in a large pool with nothing beside it."""
    engine = engine_on(FakeRunner(num_blocks=200), prefix_cache=False)
    engine.add(request("r", prompt, max_tokens, **BEAMS | about))
    return results(run_to_end(engine)["r"])


def results(events: list[TokenEvent]) -> list[tuple[tuple[int, ...], float | None]]:
    assert [event.index for event in events] == list(range(len(events)))
    assert all(event.finish in ("stop", "length") and event.stats is not None for event in events)
    return [(event.token_ids, event.score) for event in events]


def beam(seq_id: int, outputs: list[int], total: float) -> Sequence:
    seq = Sequence(seq_id, Request("r", (1,), SamplingParams(max_tokens=4)), 4, frozenset({0}), 0, 0, 0.0)
    seq.token_ids += outputs
    seq.total = total
    return seq


def test_a_step_of_a_search_by_hand() -> None:
    search = BeamSearch(SamplingParams(max_tokens=4, beam_width=2), 2, 4, frozenset({0}))
    beams = [beam(1, [5], -1.0), beam(2, [6], -2.0)]
    offers = {1: ((0, -0.2), (7, -0.5), (8, -3.0)), 2: ((0, -0.1), (9, -0.9), (8, -1.0))}
    growths, over = search.advance(beams, offers)
    # In order: 1+0 -1.2, 1+7 -1.5, 2+0 -2.1, 2+9 -2.9. The first two may end, the end in third place may not.
    assert [(growth.beam.seq_id, growth.token.token_id, growth.total) for growth in growths] == [
        (1, 7, -1.5),
        (2, 9, -2.9),
    ]
    assert [(one.token_ids, one.score, one.stopped) for one in search.best] == [((5, 0), -1.2 / 2, True)]
    assert not over


@pytest.mark.parametrize(
    ("early_stopping", "length_penalty", "total", "over"),
    [
        (True, 1.0, -0.1, True),
        (False, 1.0, -1.0, False),  # -0.5 a token: better than -0.6
        (False, 1.0, -1.3, True),
        ("never", 1.0, -1.3, False),  # four tokens may come to -0.325
        ("never", 1.0, -2.5, True),
        ("never", 0.0, -0.5, False),
        ("never", 0.0, -0.7, True),
    ],
)
def test_when_a_search_is_over(early_stopping: Any, length_penalty: float, total: float, over: bool) -> None:
    sampling = SamplingParams(
        max_tokens=4, beam_width=1, length_penalty=length_penalty, early_stopping=early_stopping
    )
    best = [Hypothesis((0,), (), -0.6, True)]
    search = BeamSearch(sampling, 1, 4, frozenset({0}), best)
    assert search.advance([beam(1, [5], 0.0)], {1: ((7, total),)})[1] == over
    assert search.best == best


def test_beams_share_their_blocks_and_dropped_ones_are_free_in_the_same_step() -> None:
    engine = engine_on(FakeRunner(), prefix_cache=False)
    engine.add(request("r", PROMPT, 30, **BEAMS))
    while engine.has_work:
        engine.step()
        running = engine.stats().running
        assert running in (0, 3)
        held = engine.stats().blocks_total - engine.stats().blocks_free
        # 2 full blocks of the prompt in common; of 30 tokens more each beam has at most 3 of its own.
        assert held <= 2 + 3 * 3
    assert all_blocks_are_free(engine)


@pytest.mark.parametrize("policy", ["max_utilization", "guaranteed_no_evict"])
@pytest.mark.parametrize("num_host_blocks", [0, 12])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_searches_under_preemption_find_what_they_find_alone(
    policy: Any, num_host_blocks: int, prefix_cache: bool
) -> None:
    runner = FakeRunner(num_blocks=16, num_host_blocks=num_host_blocks)
    engine = engine_on(runner, prefix_cache=prefix_cache, policy=policy, max_batched_tokens=20)
    prompts = [PROMPT[number : number + 20] for number in range(5)]
    for number, prompt in enumerate(prompts):
        engine.add(request(str(number), prompt, 50, **BEAMS))
        engine.add(request(f"plain {number}", prompt, 50, priority=number % 2))
    events = run_to_end(engine)
    for number, prompt in enumerate(prompts):
        assert results(events[str(number)]) == found_alone(prompt, 50)
    assert (engine.stats().preemptions > 0) == (policy == "max_utilization")
    assert all_blocks_are_free(engine)


def test_a_search_on_a_cached_prompt_finds_the_same() -> None:
    engine = engine_on(FakeRunner())
    engine.add(request("warm", PROMPT, 5))
    run_to_end(engine)
    engine.add(request("r", PROMPT, 25, **BEAMS))
    events = run_to_end(engine)["r"]
    assert results(events) == found_alone(PROMPT, 25)
    assert events[0].stats is not None
    assert events[0].stats.cached_tokens == 39


def test_hypotheses_stop_at_end_tokens_and_have_logprobs_where_asked_for() -> None:
    engine = fake_engine(FakeRunner(vocab_size=11))
    about = BEAMS | {"logprobs": 2, "ignore_eos": False}
    engine.add(Request("r", (1, 2, 3), SamplingParams(max_tokens=12, **about)))
    events = run_to_end(engine)["r"]
    assert {event.finish for event in events} == {"stop"}
    for event in events:
        assert event.stop_token == event.token_ids[-1] == 0
        assert 0 not in event.token_ids[:-1]
        logprobs = event.logprobs or ()
        assert [item.token_id for item in logprobs] == list(event.token_ids)
        assert {len(item.top) for item in logprobs} == {2}
        assert event.score == pytest.approx(sum(item.logprob for item in logprobs) / len(logprobs))


def test_no_hypothesis_ends_before_min_tokens() -> None:
    engine = fake_engine(FakeRunner(vocab_size=11))
    about = BEAMS | {"min_tokens": 5, "ignore_eos": False}
    engine.add(Request("r", (1, 2, 3), SamplingParams(max_tokens=12, **about)))
    assert min(len(event.token_ids) for event in run_to_end(engine)["r"]) == 6


def test_an_abort_and_an_error_end_the_search_as_a_whole() -> None:
    engine = engine_on(FakeRunner())
    engine.add(request("r", PROMPT, 25, **BEAMS | {"n": 2}))
    for _ in range(4):
        assert engine.step() == []
    engine.abort("r")
    assert all_blocks_are_free(engine)
    assert [(e.finish, e.index, e.token_ids) for e in engine.step()] == [("abort", 0, ()), ("abort", 1, ())]
    poison = found_alone(PROMPT, 25)[0][0][4]
    engine = engine_on(FakeRunner(poison=poison))
    engine.add(request("r", [token for token in PROMPT if token != poison], 25, **BEAMS))
    engine.add(request("s", [1], 3))
    events = run_to_end(engine)
    assert len(tokens(events["s"])) == 3
    assert all_blocks_are_free(engine)


@pytest.mark.parametrize(
    ("about", "param"),
    [
        ({"beam_width": 0}, "beam_width"),
        ({"beam_width": 2, "n": 3}, "beam_width"),
        ({"beam_width": 9, "n": 1}, "beam_width"),
        ({"temperature": 0.5}, "temperature"),
        ({"top_k": 3}, "top_k"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"best_of": 3}, "best_of"),
        ({"early_stopping": "maybe"}, "early_stopping"),
        ({"length_penalty": float("inf")}, "length_penalty"),
        ({"length_penalty": 1e6}, "length_penalty"),
        ({"length_penalty": -1e6}, "length_penalty"),
    ],
)
def test_what_does_not_go_with_a_search_is_refused(about: dict[str, Any], param: str) -> None:
    engine: Engine = engine_on(FakeRunner())
    with pytest.raises(InvalidParameter, match=f"{param} is"):
        engine.add(request("r", PROMPT, 5, **BEAMS | about))


def test_a_search_whose_beams_could_not_all_grow_is_refused() -> None:
    engine = engine_on(FakeRunner(num_blocks=17))
    with pytest.raises(TooLargeForPool, match="need 18 KV blocks; the pool has 17"):
        engine.add(request("r", PROMPT, 50, **BEAMS))
