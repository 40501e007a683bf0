"""Examples that can be reckoned by hand: memory held, who leaves when, pools and contexts too small."""

from dataclasses import replace
from typing import Any

import pytest

from engine.config import Policy, blocks_for
from engine.engine import Engine
from engine.errors import PromptTooLong, TooLargeForPool
from engine.fake_runner import FakeRunner, FixedCosts, expected, fake_engine
from engine.records import Request, SamplingParams, TokenEvent
from engine.victims import MAX_PREEMPTIONS


def _engine(num_blocks: int, model_len: int, *, num_host_blocks: int = 0, **settings: Any) -> Engine:
    runner = FakeRunner(num_blocks=num_blocks, num_host_blocks=num_host_blocks, model_len=model_len)
    return fake_engine(runner, **settings)


def _request(name: str, prompt_len: int, max_tokens: int) -> Request:
    """Prompts differ from their first token on."""
    prompt = tuple((ord(name[0]) + 7 * i) % 96 + 1 for i in range(prompt_len))
    return Request(name, prompt, SamplingParams(max_tokens=max_tokens, seed=1, ignore_eos=True))


def _run_to_end(engine: Engine) -> dict[str, list[TokenEvent]]:
    events: dict[str, list[TokenEvent]] = {}
    while engine.has_work:
        for event in engine.step():
            events.setdefault(event.request_id, []).append(event)
    return events


def test_little_memory_is_reserved_and_unused_whatever_length_is_declared() -> None:
    engine = _engine(1000, 8192, max_model_len=8192)
    for name, prompt_len in (("a", 1200), ("b", 7600), ("c", 2000)):
        engine.add(_request(name, prompt_len, 8192 - prompt_len))
    while engine.stats().live_tokens < 10_800:
        engine.step()
    stats = engine.stats()
    reserved = (stats.blocks_total - stats.blocks_free) * 16
    assert (reserved - stats.live_tokens) / reserved < 0.04


def test_short_requests_leave_long_ones_behind_and_waiting_work_comes_in_the_next_step() -> None:
    engine = _engine(2000, 17_000, max_num_seqs=4)
    for name, prompt_len, max_tokens in (
        ("A", 1000, 100),
        ("B", 8000, 800),
        ("C", 2000, 50),
        ("D", 16_000, 200),
    ):
        engine.add(_request(name, prompt_len, max_tokens))
    for name in ("E", "F"):
        engine.add(_request(name, 300, 4000))
    ended: list[str] = []
    while len(ended) < 2:
        left = [event.request_id for event in engine.step() if event.finish]
        ended += left
        if left:
            assert (engine.stats().running, engine.stats().waiting) == (3, 3 - len(ended))
            engine.step()
            assert (engine.stats().running, engine.stats().waiting) == (4, 2 - len(ended))
    assert ended == ["C", "A"]


def test_273_tokens_take_18_blocks() -> None:
    engine = _engine(40, 1024)
    engine.add(_request("a", 273, 2))
    engine.step()
    assert (blocks_for(273), engine.stats().blocks_free) == (18, 40 - 18)


@pytest.mark.parametrize("num_host_blocks", [0, 30])
@pytest.mark.parametrize("policy", ["max_utilization", "guaranteed_no_evict"])
def test_eight_long_requests_end_as_if_alone_in_a_pool_for_two_and_a_half(
    policy: Policy, num_host_blocks: int
) -> None:
    engine = _engine(25, 1024, num_host_blocks=num_host_blocks, policy=policy)
    asked = [_request(name, 40, 121) for name in "abcdefgh"]  # 10 blocks each when complete
    for request in asked:
        engine.add(request)
    events = _run_to_end(engine)
    for request in asked:
        own = events[request.id]
        alone = expected(request.prompt, 121, seed=1, stop_ids=frozenset())
        assert [token for event in own for token in event.token_ids] == alone
        assert own[-1].stats is not None
        assert own[-1].stats.preemptions <= (MAX_PREEMPTIONS if policy == "max_utilization" else 0)
    stats = engine.stats()
    assert (stats.preemptions > 0) == (policy == "max_utilization")
    assert (stats.swaps > 0) == (policy == "max_utilization" and num_host_blocks > 0)


@pytest.mark.parametrize(("block_seconds", "swaps"), [(1e-9, True), (1.0, False)])
def test_the_cheaper_way_brings_a_victim_back_and_it_is_not_chosen_for_ever(
    block_seconds: float, swaps: bool
) -> None:
    runner = FakeRunner(num_blocks=25, num_host_blocks=30)
    engine = fake_engine(runner, FixedCosts(block_seconds=block_seconds), prefix_cache=False)
    engine.add(_request("victim", 150, 230))  # 24 blocks when complete
    urgent, last = 0, None
    while last is None and urgent < 9:
        if (engine.stats().running, engine.stats().waiting) == (1, 0):  # the victim runs, alone
            urgent += 1
            engine.add(replace(_request(f"urgent {urgent}", 20, 250), priority=-1))
        last = next((event for event in engine.step() if event.request_id == "victim" and event.finish), None)
    assert last is not None
    assert last.stats is not None
    assert last.stats.preemptions == MAX_PREEMPTIONS
    assert urgent > MAX_PREEMPTIONS  # there was one more that would have liked its blocks
    assert engine.stats().swaps == (engine.stats().preemptions if swaps else 0)
    assert last.stats.completion_tokens == 230


def test_what_exceeds_context_or_pool_is_refused_and_the_next_one_served() -> None:
    engine = _engine(20, 1024, max_model_len=600)
    with pytest.raises(PromptTooLong, match="600"):
        engine.add(_request("a", 600, 1))
    with pytest.raises(TooLargeForPool, match="20"):
        engine.add(_request("b", 200, 150))
    engine.add(_request("c", 200, 100))
    (events,) = _run_to_end(engine).values()
    assert sum(len(event.token_ids) for event in events) == 100
