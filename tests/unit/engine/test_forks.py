"""Several completions of one prompt on shared blocks."""

from typing import Any

import pytest

from engine.errors import DuplicateRequest, InvalidParameter
from engine.fake_runner import FakeRunner, FakeWeights, expected, fake_engine
from engine.records import Request, SamplingParams

PROMPT = tuple((7 * i) % 90 + 1 for i in range(200))


def _request(name: str, seed: int, **about: Any) -> Request:
    return Request(name, PROMPT, SamplingParams(max_tokens=20, seed=seed, ignore_eos=True), **about)


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_n_completions_compute_their_prompt_once_and_go_their_own_ways(prefix_cache: bool) -> None:
    runner = FakeRunner()
    engine = fake_engine(runner, prefix_cache=prefix_cache)
    engine.add(_request("0", 0))
    events = engine.step()
    for seed in (1, 2, 3):
        engine.fork("0", _request(str(seed), seed))
    assert engine.stats().blocks_total - engine.stats().blocks_free == 13
    while engine.has_work:
        events += engine.step()
    for seed in range(4):
        own = [token for event in events if event.request_id == str(seed) for token in event.token_ids]
        assert own == expected(PROMPT, 20, seed=seed, stop_ids=frozenset())
    computed = sum(count for plan in runner.plans for _, _, count in plan)
    assert computed == 200 + 3 + 4 * 19
    assert engine.stats().blocks_free == engine.stats().blocks_total


def test_a_fork_of_nobody_or_of_other_weights_is_refused() -> None:
    engine = fake_engine(FakeRunner())
    engine.add_adapter(FakeWeights("sha256:a"))
    engine.add(_request("0", 0))
    for parent, about in (("1", {}), ("0", {"adapter": "sha256:a"}), ("0", {"cache_salt": "t"})):
        with pytest.raises(InvalidParameter, match="parent"):
            engine.fork(parent, _request("2", 1, **about))
    with pytest.raises(DuplicateRequest):
        engine.fork("0", _request("0", 1))
    assert engine.stats().waiting == 1


def test_a_fork_outlives_its_parent() -> None:
    engine = fake_engine(FakeRunner())
    engine.add(_request("0", 0))
    engine.step()
    engine.fork("0", _request("1", 1))
    engine.abort("0")
    events = []
    while engine.has_work:
        events += engine.step()
    own = [token for event in events if event.request_id == "1" for token in event.token_ids]
    assert own == expected(PROMPT, 20, seed=1, stop_ids=frozenset())
