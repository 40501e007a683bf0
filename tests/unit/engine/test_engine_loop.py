"""The engine as a library, over a runner that computes digests: completions, ends, refusals, aborts."""

from typing import Any

import pytest

from engine.errors import (
    DuplicateRequest,
    EngineBusy,
    InvalidParameter,
    PromptTooLong,
    QueueFull,
    TooLargeForPool,
    UnknownAdapter,
)
from engine.fake_runner import FakeRunner, expected
from engine.records import Request, SamplingParams
from engine.victims import MAX_PREEMPTIONS
from tests.unit.engine.fake_engines import all_blocks_are_free, engine_on, request, run_to_end, tokens


def test_many_requests_complete_as_each_would_alone() -> None:
    engine = engine_on(FakeRunner())
    prompts = [[(7 * i + j) % 97 for j in range(3 + 5 * i)] for i in range(12)]
    completions = engine.generate(prompts, SamplingParams(max_tokens=40, seed=5))
    assert completions == [expected(prompt, 40, seed=5) for prompt in prompts]
    assert all_blocks_are_free(engine)


def test_a_request_has_one_last_event_with_its_account() -> None:
    engine = engine_on(FakeRunner())
    engine.add(request("r", range(20), 5))
    events = run_to_end(engine)["r"]
    assert [event.finish for event in events] == [None] * 4 + ["length"]
    assert [event.stats is not None for event in events] == [False] * 4 + [True]
    stats = events[-1].stats
    assert stats is not None
    assert (stats.prompt_tokens, stats.cached_tokens, stats.completion_tokens) == (20, 0, 5)
    assert events[-1].stop_token is events[-1].error is None


def test_a_stop_token_ends_it_and_is_counted() -> None:
    prompt = range(20)
    whole = expected(prompt, 8, seed=1, stop_ids=frozenset())
    engine = engine_on(FakeRunner())
    engine.add(request("r", prompt, 8, stop_token_ids=(whole[3],)))
    events = run_to_end(engine)["r"]
    first = whole.index(whole[3])
    assert tokens(events) == whole[: first + 1]
    assert (events[-1].finish, events[-1].stop_token) == ("stop", whole[3])
    assert events[-1].stats is not None
    assert events[-1].stats.completion_tokens == first + 1


def test_the_models_end_token_ends_it_unless_ignored_or_too_early() -> None:
    def completion(**sampling: Any) -> tuple[list[int], str | None]:
        engine = engine_on(FakeRunner(vocab_size=4))
        engine.add(request("r", [1, 2, 3], 40, **sampling))
        events = run_to_end(engine)["r"]
        return tokens(events), events[-1].finish

    plain, finish = completion(ignore_eos=False)
    assert (plain[-1], finish) == (0, "stop")
    assert len(plain) < 20
    ignoring, finish = completion(ignore_eos=True)
    assert (len(ignoring), finish) == (40, "length")
    assert 0 in ignoring
    late, _ = completion(ignore_eos=False, min_tokens=30)
    assert len(late) > 30
    assert 0 not in late[:30]


def test_max_tokens_is_clamped_to_the_model_length() -> None:
    engine = engine_on(FakeRunner(), max_model_len=50)
    engine.add(request("r", range(40), 1000))
    events = run_to_end(engine)["r"]
    assert (len(tokens(events)), events[-1].finish) == (10, "length")


def test_logprobs_come_only_where_asked_for() -> None:
    engine = engine_on(FakeRunner())
    engine.add(request("with", range(5), 2, logprobs=0))
    engine.add(request("without", range(5), 2))
    events = run_to_end(engine)
    assert [[lp.token_id for lp in event.logprobs or ()] for event in events["with"]] == [
        [token_id] for token_id in tokens(events["with"])
    ]
    assert all(event.logprobs is None for event in events["without"])


@pytest.mark.parametrize("max_batched_tokens", [8, 9, 16, 17, 64])
def test_chunks_of_any_size_give_the_same_tokens(max_batched_tokens: int) -> None:
    engine = engine_on(FakeRunner(), max_batched_tokens=max_batched_tokens)
    prompts = [list(range(70)), list(range(3)), list(range(50, 90))]
    completions = engine.generate(prompts, SamplingParams(max_tokens=20, seed=2, ignore_eos=True))
    assert completions == [expected(p, 20, seed=2, stop_ids=frozenset()) for p in prompts]


def test_every_refusal_leaves_nothing_behind() -> None:
    engine = engine_on(FakeRunner(num_blocks=6), max_waiting=2, max_model_len=200)
    engine.add(request("a", range(5)))
    engine.add(request("b", range(5)))
    refusals: list[tuple[type[Exception], Request]] = [
        (InvalidParameter, request("c", range(5), temperature=float("nan"))),
        (InvalidParameter, request("c", [97])),
        (PromptTooLong, request("c", [1] * 200)),
        (TooLargeForPool, request("c", range(90), 8)),
        (DuplicateRequest, request("a", range(5))),
        (QueueFull, request("c", range(5))),
    ]
    for error, refused in refusals:
        with pytest.raises(error):
            engine.add(refused)
    assert engine.stats().waiting == 2
    assert set(run_to_end(engine)) == {"a", "b"}
    with pytest.raises(UnknownAdapter):
        engine.add(request("c", range(5), adapter="sha256:x"))
    engine.check_integrity()
    assert all_blocks_are_free(engine)


def test_an_id_can_be_used_again_after_its_request_has_ended() -> None:
    engine = engine_on(FakeRunner())
    for _ in range(2):
        engine.add(request("r", range(5)))
        assert set(run_to_end(engine)) == {"r"}


def test_abort_in_the_queue_in_prefill_and_in_decode() -> None:
    engine = engine_on(FakeRunner(), max_num_seqs=2, max_batched_tokens=16)
    engine.add(request("decode", range(4), 50))
    engine.step()
    engine.add(request("prefill", range(60), 50))
    engine.add(request("queue", range(60), 50))
    engine.step()
    for request_id in ("queue", "prefill", "decode"):
        assert engine.abort(request_id)
        assert not engine.abort(request_id)
    assert all_blocks_are_free(engine)
    events = engine.step()
    assert [(event.request_id, event.finish, event.token_ids) for event in events] == [
        ("queue", "abort", ()),
        ("prefill", "abort", ()),
        ("decode", "abort", ()),
    ]
    assert [event.stats.completion_tokens for event in events if event.stats] == [0, 0, 2]
    assert not engine.has_work
    assert not engine.abort("never-was")


def test_preempted_requests_complete_as_if_alone_and_preemptions_are_bounded() -> None:
    engine = engine_on(FakeRunner(num_blocks=25), max_batched_tokens=128)
    prompts = [[(11 * i + j) % 97 for j in range(40)] for i in range(8)]
    for index, prompt in enumerate(prompts):  # 10 blocks each when complete: the pool holds 2.5 of them
        engine.add(request(str(index), prompt, 121))
    events = run_to_end(engine)
    for index, prompt in enumerate(prompts):
        own = events[str(index)]
        assert tokens(own) == expected(prompt, 121, seed=1, stop_ids=frozenset())
        assert own[-1].stats is not None
        assert own[-1].stats.preemptions <= MAX_PREEMPTIONS
    assert engine.stats().preemptions > 0


def test_generate_takes_more_prompts_than_may_wait() -> None:
    engine = engine_on(FakeRunner(), max_waiting=2, max_num_seqs=2)
    prompts = [[index + 1] for index in range(9)]
    completions = engine.generate(prompts, SamplingParams(max_tokens=4, seed=3))
    assert completions == [expected(prompt, 4, seed=3) for prompt in prompts]
    assert engine.generate([], SamplingParams(max_tokens=4)) == []


def test_generate_runs_alone() -> None:
    engine = engine_on(FakeRunner())
    engine.add(request("r", range(5)))
    with pytest.raises(EngineBusy, match="1 requests are live"):
        engine.generate([[1]], SamplingParams(max_tokens=4))


def test_figures_of_steps_and_tokens() -> None:
    engine = engine_on(FakeRunner())
    engine.add(request("a", range(10), 3))
    engine.step()
    stats = engine.stats()
    assert (stats.running, stats.steps, stats.last_batch_tokens) == (1, 1, 10)
    assert (stats.prompt_tokens, stats.generated_tokens) == (10, 1)
    run_to_end(engine)
    assert (engine.stats().steps, engine.stats().generated_tokens) == (3, 3)
