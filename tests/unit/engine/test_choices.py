"""Several choices of one prompt: n, and the best of more; each is what a request of its own would be."""

from dataclasses import replace
from typing import Any

import pytest

from engine.engine import Engine
from engine.errors import InvalidParameter
from engine.fake_runner import FakeRunner, expected
from engine.records import SamplingParams, StepPlan, TokenEvent
from tests.unit.engine.fake_engines import all_blocks_are_free, engine_on, request, run_to_end, tokens

PROMPT = [(7 * i) % 90 + 1 for i in range(200)]

SHORT = [1, 8, 15]


def choices(events: list[TokenEvent], n: int) -> list[list[TokenEvent]]:
    """The events of each choice; each has its one last event, and it comes last."""
    found = [[event for event in events if event.index == index] for index in range(n)]
    assert sum(map(len, found)) == len(events)
    for own in found:
        assert [event.finish is not None for event in own] == [False] * (len(own) - 1) + [True]
    return found


def alone(seed: int, max_tokens: int = 20, prompt: list[int] = PROMPT) -> list[int]:
    return expected(prompt, max_tokens, seed=seed, stop_ids=frozenset())


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("prompt_len", [192, 200, 201])
def test_n_choices_compute_their_prompt_once_and_draw_with_seeds_of_their_own(
    prefix_cache: bool, prompt_len: int
) -> None:
    runner = FakeRunner()
    engine = engine_on(runner, prefix_cache=prefix_cache, max_batched_tokens=256)
    prompt = [(7 * i) % 90 + 1 for i in range(prompt_len)]
    engine.add(request("r", prompt, 20, n=4, seed=5))
    events = run_to_end(engine)["r"]
    for index, own in enumerate(choices(events, 4)):
        assert tokens(own) == alone(5 + index, prompt=prompt)
        assert len(own) == 20
        assert own[-1].stats is not None
        assert (own[-1].stats.prompt_tokens, own[-1].stats.completion_tokens) == (prompt_len, 20)
    # Each further choice computes the last token of the prompt again, to draw its own first one.
    assert sum(count for plan in runner.plans for _, _, count in plan) == prompt_len + 3 + 4 * 19
    assert engine.stats().prompt_tokens == prompt_len
    assert all_blocks_are_free(engine)


def test_choices_share_the_blocks_of_the_prompt_and_copy_the_last_one() -> None:
    copies = 0

    def count(plan: StepPlan) -> None:
        nonlocal copies
        copies += len(plan.copies)

    engine = engine_on(FakeRunner(before_run=count), max_batched_tokens=256, prefix_cache=False)
    engine.add(request("r", PROMPT, 8, n=4))
    engine.step()
    assert engine.stats().blocks_total - engine.stats().blocks_free == 13  # 200 tokens
    engine.step()
    assert engine.stats().blocks_total - engine.stats().blocks_free == 13 + 3
    assert copies == 3


def test_the_first_choice_is_that_of_a_single_one() -> None:
    engine = engine_on(FakeRunner())
    prompts = [PROMPT, PROMPT[5:]]
    sampling = SamplingParams(max_tokens=9, seed=-(1 << 63), ignore_eos=True)
    single = engine.generate(prompts, sampling)
    several = engine.generate(prompts, replace(sampling, n=3))
    assert several[::3] == single
    assert len({tuple(completion) for completion in several}) == 6


def test_seeds_go_round_at_64_bits() -> None:
    engine = engine_on(FakeRunner())
    engine.add(request("r", PROMPT, 9, n=2, seed=(1 << 63) - 1))
    _, second = choices(run_to_end(engine)["r"], 2)
    assert tokens(second) == alone(-(1 << 63), 9)


def test_a_choice_that_ends_at_its_first_token_leaves_the_others() -> None:
    first = alone(1, 1)[0]
    engine = engine_on(FakeRunner())
    engine.add(request("r", PROMPT, 9, n=3, stop_token_ids=(first,)))
    found = choices(run_to_end(engine)["r"], 3)
    assert tokens(found[0]) == [first]
    assert [own[-1].finish for own in found].count("length") == 2


def test_more_choices_than_fit_wait_for_one_another() -> None:
    runner = FakeRunner(num_blocks=8)  # each choice takes 7 when complete
    engine = engine_on(runner)
    engine.add(request("r", PROMPT[:40], 70, n=5))
    engine.add(request("s", PROMPT[1:4], 4))
    events = run_to_end(engine)
    for index, own in enumerate(choices(events["r"], 5)):
        assert tokens(own) == alone(1 + index, 70, PROMPT[:40])
    assert all_blocks_are_free(engine)


@pytest.mark.parametrize("num_blocks", [30, 60])
def test_nobody_is_evicted_where_that_is_guaranteed(num_blocks: int) -> None:
    engine = engine_on(FakeRunner(num_blocks=num_blocks), policy="guaranteed_no_evict")
    for number in range(4):
        engine.add(request(str(number), PROMPT[number : number + 50], 60, n=4))
    events = run_to_end(engine)
    for number in range(4):
        for index, own in enumerate(choices(events[str(number)], 4)):
            assert tokens(own) == alone(1 + index, 60, PROMPT[number : number + 50])
    assert engine.stats().preemptions == 0


def test_places_are_kept_for_choices_to_come() -> None:
    engine = engine_on(FakeRunner(), max_num_seqs=4, max_batched_tokens=16)
    engine.add(request("r", PROMPT, 4, n=4))
    engine.add(request("s", PROMPT, 4))
    seen = set()
    while engine.has_work:
        engine.step()
        seen.add((engine.stats().running, engine.stats().waiting))
    assert (1, 1) in seen  # while the prompt is computed
    assert (4, 1) in seen
    assert max(running for running, _ in seen) == 4


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_an_abort_ends_all_choices_also_those_not_begun(steps: int) -> None:
    engine = engine_on(FakeRunner())
    engine.add(request("r", PROMPT, 20, n=3))
    events = [event for _ in range(steps) for event in engine.step()]
    assert engine.abort("r")
    assert all_blocks_are_free(engine)
    events += engine.step()
    assert [own[-1].finish for own in choices(events, 3)] == ["abort"] * 3
    assert not engine.has_work


def test_an_abort_of_one_choice_leaves_the_others() -> None:
    engine = engine_on(FakeRunner())
    engine.add(request("r", PROMPT, 20, n=3))
    assert not engine.abort("r", 0)  # it computes the prompt of all
    events = [event for _ in range(5) for event in engine.step()]
    used = engine.stats().blocks_total - engine.stats().blocks_free
    assert engine.abort("r", 0)
    assert engine.stats().blocks_total - engine.stats().blocks_free == used - 1
    assert not engine.abort("r", 0)
    assert not engine.abort("r", 3)
    assert not engine.abort("s", 0)
    found = choices([*events, *run_to_end(engine)["r"]], 3)
    assert [own[-1].finish for own in found] == ["abort", "length", "length"]
    assert [tokens(own) for own in found[1:]] == [alone(2), alone(3)]
    assert all_blocks_are_free(engine)


@pytest.mark.parametrize("about", [{"best_of": 3}, {"beam_width": 3, "temperature": 0.0}])
def test_what_is_told_whole_is_not_ended_in_part(about: dict[str, Any]) -> None:
    engine = engine_on(FakeRunner())
    engine.add(request("r", PROMPT, 5, n=2, **about))
    engine.step()
    assert not engine.abort("r", 0)
    assert [own[-1].finish for own in choices(run_to_end(engine)["r"], 2)] == ["length"] * 2


def poison() -> int:
    """A token that of four choices of SHORT only the second one makes, before its last."""
    others = {token for seed in (1, 3, 4) for token in alone(seed, prompt=SHORT)}
    return next(token for token in alone(2, prompt=SHORT)[:-1] if token not in {*others, *SHORT})


def test_an_error_of_one_choice_does_not_end_the_others() -> None:
    engine = engine_on(FakeRunner(poison=poison()))
    engine.add(request("r", SHORT, 20, n=3))
    found = choices(run_to_end(engine)["r"], 3)
    assert [own[-1].finish for own in found] == ["length", "error", "length"]
    assert tokens(found[2]) == alone(3, prompt=SHORT)


def test_where_the_prompt_fails_all_choices_fail() -> None:
    engine = engine_on(FakeRunner(poison=90))
    engine.add(request("r", [*PROMPT, 90], 20, n=3))
    found = choices(run_to_end(engine)["r"], 3)
    assert [(own[-1].finish, own[-1].error) for own in found] == [("error", "logits are not finite")] * 3


def scored(tokens: list[int]) -> float:
    """Per token; the fake's logprob of a sampled one is its negative."""
    return float(-sum(tokens)) / len(tokens)


def test_best_of_hands_out_the_likeliest_whole() -> None:
    engine = engine_on(FakeRunner())
    engine.add(request("r", PROMPT, 20, n=2, best_of=5))
    found = choices(run_to_end(engine)["r"], 2)
    best = sorted((alone(1 + index) for index in range(5)), key=scored, reverse=True)
    assert [tokens(own) for own in found] == best[:2]
    assert [own[0].score for own in found] == [scored(best[0]), scored(best[1])]
    assert all(len(own) == 1 and own[0].logprobs is None for own in found)
    assert [own[0].stats.hidden_tokens for own in found if own[0].stats] == [60, 0]
    assert best[0] != alone(1)
    assert next(own[0].stats.cached_tokens for own in found if own[0].stats) == 0


def test_best_of_has_logprobs_where_asked_for_and_ranks_errors_last() -> None:
    engine = engine_on(FakeRunner(poison=poison()))
    engine.add(request("r", SHORT, 20, n=3, best_of=3))
    assert [own[-1].finish for own in choices(run_to_end(engine)["r"], 3)] == ["length", "error", "length"]
    engine.add(request("r", SHORT, 20, n=3, best_of=4, logprobs=0))
    found = choices(run_to_end(engine)["r"], 3)
    best = sorted((alone(seed, prompt=SHORT) for seed in (1, 3, 4)), key=scored, reverse=True)
    assert [tokens(own) for own in found] == best
    assert [item.token_id for item in found[0][0].logprobs or ()] == best[0]
    engine.add(request("r", SHORT, 20, n=3, best_of=4))
    assert engine.abort("r")
    aborted = [own[0] for own in choices(engine.step(), 3)]
    assert [(event.finish, event.token_ids, event.score) for event in aborted] == [("abort", (), None)] * 3


@pytest.mark.parametrize(
    "about", [{"n": 0}, {"n": 9}, {"n": 3, "best_of": 2}, {"best_of": 9}, {"n": True}, {"best_of": 1.5}]
)
def test_odd_numbers_of_choices_are_refused(about: dict[str, Any]) -> None:
    engine: Engine = engine_on(FakeRunner())
    with pytest.raises(InvalidParameter, match=r"(n|best_of) is"):
        engine.add(request("r", PROMPT, 20, **about))
    assert not engine.has_work
