"""What a request says of single tokens, all the way through an engine; in company, and preempted."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import InvalidParameter
from engine.fake_runner import FakeRunner, expected, fake_engine
from engine.generate import generate
from engine.records import Request, SamplingParams, TokenEvent

PROMPT = [5, 6, 7]


def run(*requests: Request, **pool: Any) -> dict[str, list[TokenEvent]]:
    engine = fake_engine(FakeRunner(**pool))
    events: dict[str, list[TokenEvent]] = {request.id: [] for request in requests}
    for request in requests:
        engine.add(request)
    while engine.has_work:
        for event in engine.step():
            events[event.request_id].append(event)
    return events


def request(name: str = "r", **sampling: Any) -> Request:
    asked = {"max_tokens": 30, "seed": 1, "ignore_eos": True} | sampling
    return Request(name, tuple(PROMPT), SamplingParams(**asked))


def tokens(events: list[TokenEvent]) -> list[int]:
    return [token for event in events for token in event.token_ids]


def test_a_bad_word_is_left_out_and_what_comes_before_it_stays() -> None:
    plain = expected(PROMPT, 30, seed=1, stop_ids=frozenset())
    got = tokens(run(request(bad_words=(tuple(plain[2:5]),)))["r"])
    assert got[:4] == plain[:4]
    assert got[4] != plain[4]


def test_only_allowed_tokens_come_and_one_that_is_not_allowed_ends_nothing() -> None:
    events = run(request(allowed_token_ids=tuple(range(50, 60)), ignore_eos=False))["r"]
    assert set(tokens(events)) <= set(range(50, 60))
    assert events[-1].finish == "length"


def test_a_row_with_no_token_left_fails_alone() -> None:
    events = run(request("a", allowed_token_ids=(4,), bad_words=((4, 4),)), request("b"))
    assert (tokens(events["a"]), events["a"][-1].finish) == ([4], "error")
    assert tokens(events["b"]) == expected(PROMPT, 30, seed=1, stop_ids=frozenset())


def test_choices_are_the_same_alone_in_company_and_preempted() -> None:
    asked = [
        {"bad_words": tuple((a, b) for a in range(0, 97, 2) for b in range(0, 97, 5))[:256], "seed": 3},
        {"allowed_token_ids": tuple(range(20, 70)), "seed": 9, "n": 3},
    ]
    requests = [request(f"r{place}", max_tokens=80, **each) for place, each in enumerate(asked)]
    others = [request(f"other{place}", max_tokens=80, seed=place) for place in range(4)]
    alone = {one.id: by_choice(run(one)[one.id]) for one in requests}
    crowded = run(*requests, *others, num_blocks=12)
    assert {one.id: by_choice(crowded[one.id]) for one in requests} == alone
    assert any(event.stats and event.stats.preemptions for each in crowded.values() for event in each)


def by_choice(events: list[TokenEvent]) -> dict[int, list[int]]:
    return {index: tokens([e for e in events if e.index == index]) for index in {e.index for e in events}}


def test_a_vocabulary_without_the_token_refuses_the_request() -> None:
    engine = fake_engine(FakeRunner())
    with pytest.raises(InvalidParameter, match="allowed_token_ids is 97"):
        generate(engine, [PROMPT], SamplingParams(max_tokens=2, allowed_token_ids=(97,)), None)
    assert not engine.has_work
