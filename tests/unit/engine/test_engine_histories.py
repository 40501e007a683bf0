"""The engine through random histories: whatever happens around it, a request completes as if alone."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.activation import activation
from engine.errors import (
    AdapterInUse,
    InvalidParameter,
    PromptTooLong,
    QueueFull,
    TooLargeForPool,
    UnknownAdapter,
)
from engine.fake_runner import (
    START,
    FakeRunner,
    FakeWeights,
    expected,
    fake_engine,
    next_state,
    prompt_score,
)
from engine.records import Request, RequestStats, SamplingParams, TokenEvent
from engine.victims import MAX_PREEMPTIONS
from tests.unit.engine.slot_watch import SlotWatch

INVOCATIONS = {"sha256:a": (), "sha256:b": (), "sha256:c": (40, 41), "sha256:d": (33,), "sha256:e": ()}
"""Of each adapter; prompts of some lengths and families have them, at several positions."""

DIGESTS = tuple(INVOCATIONS)
POISON = 96

CHOICES: tuple[dict[str, Any], ...] = (
    {"n": 3},
    {"n": 2, "best_of": 4},
    {"n": 2, "beam_width": 2, "temperature": 0.0},
)
"""Ways to ask for several choices."""

requests = st.fixed_dictionaries(
    {
        "family": st.integers(0, 2),
        "prompt_len": st.integers(1, 50),
        "max_tokens": st.integers(1, 100),
        "adapter": st.sampled_from([None, *DIGESTS]),
        "cache_salt": st.sampled_from(["", "t"]),
        "priority": st.integers(0, 1),
        "seed": st.integers(0, 2),
        "poisoned": st.integers(0, 9).map(lambda number: number == 0),
        "choices": st.sampled_from([{}, {}, *CHOICES]),
        "scored": st.sampled_from([None, None, 0, 3]),
    }
)
actions = st.one_of(
    st.tuples(st.just("add"), requests),
    st.tuples(st.just("step"), st.integers(1, 6)),
    st.tuples(st.just("abort"), st.integers(0, 99)),
    st.tuples(st.just("fork"), st.tuples(st.integers(0, 99), st.integers(1, 30), st.integers(0, 2))),
    st.tuples(st.just("load"), st.sampled_from(DIGESTS)),
    st.tuples(st.just("unload"), st.sampled_from(DIGESTS)),
    st.tuples(st.just("break"), st.just(0)),
)


@dataclass
class History:
    """An engine, and all that was asked of it and came of it."""

    runner: FakeRunner
    sizes: dict[str, int]
    taken: dict[str, Request] = field(default_factory=dict)
    events: dict[str, list[TokenEvent]] = field(default_factory=dict)
    watch: SlotWatch = field(default_factory=SlotWatch)
    most_parked: int = 0

    def __post_init__(self) -> None:
        self.engine = fake_engine(
            self.runner, **({"max_model_len": 200, "max_waiting": 6, "adapter_slots": 2} | self.sizes)
        )

    def add(self, about: dict[str, Any]) -> None:
        prompt = [(about["family"] * 31 + position) % POISON for position in range(about["prompt_len"])]
        request = Request(
            id=str(len(self.taken)),
            prompt=(*prompt, POISON) if about["poisoned"] else tuple(prompt),
            sampling=SamplingParams(
                max_tokens=about["max_tokens"],
                seed=about["seed"],
                prompt_logprobs=about["scored"],
                **about["choices"],
            ),
            adapter=about["adapter"],
            cache_salt=about["cache_salt"],
            priority=about["priority"],
        )
        self._take(request, lambda: self.engine.add(request))

    def _take(self, request: Request, ask: Callable[[], None]) -> None:
        try:
            ask()
        except (QueueFull, TooLargeForPool, PromptTooLong, InvalidParameter):
            return
        except UnknownAdapter:
            assert request.adapter not in self.engine.adapters()
            return
        self.taken[request.id] = request

    def fork(self, about: tuple[int, int, int]) -> None:
        """Another way to go on from what a live request has come to, with a seed of its own."""
        number, max_tokens, seed = about
        live = [id for id in self.taken if not self._has_ended(id)]
        if live:
            parent = self.taken[live[number % len(live)]]
            made = [token for event in self.events.get(parent.id, []) for token in event.token_ids]
            request = replace(
                parent,
                id=str(len(self.taken)),
                prompt=(*parent.prompt, *made),
                sampling=SamplingParams(
                    max_tokens=max_tokens, seed=seed, prompt_logprobs=parent.sampling.prompt_logprobs
                ),
            )
            self._take(request, lambda: self.engine.fork(parent.id, request))

    def _has_ended(self, request_id: str) -> bool:
        return self.engine._live.get(request_id) is None

    def step(self) -> None:
        for event in self.engine.step():
            self.events.setdefault(event.request_id, []).append(event)
        self.watch.look(self.engine._scheduler.turns)
        self.most_parked = max(self.most_parked, self.engine.stats().parked)

    def abort(self, number: int) -> None:
        if self.taken:
            self.engine.abort(list(self.taken)[number % len(self.taken)])

    def load(self, digest: str) -> None:
        self.engine.add_adapter(_weights(digest))

    def unload(self, digest: str) -> None:
        try:
            self.engine.remove_adapter(digest)
        except UnknownAdapter:
            assert digest not in self.engine.adapters()
        except AdapterInUse:
            assert self.engine.adapters()[digest].requests > 0

    def break_step(self) -> None:
        def fail(plan: object) -> None:
            raise RuntimeError("device lost")

        self.runner.before_run = fail
        self.step()
        self.runner.before_run = None

    def do(self, action: str, value: Any) -> None:
        """One action, then every invariant."""
        if action == "step":
            for _ in range(value):
                self.step()
        elif action == "break":
            self.break_step()
        else:
            getattr(self, action)(value)
        self.engine.check_integrity()

    def finish(self) -> None:
        """Step until nothing is left, which comes in bounded time, then look at what came of it all."""
        for _ in range(50 * 80 * (MAX_PREEMPTIONS + 1)):
            if not self.engine.has_work:
                break
            self.step()
        self.check_end()

    def finished(self, kind: dict[str, Any]) -> list[RequestStats]:
        """Accounts of choices that came to a good end, of requests that asked for this kind."""
        return [
            event.stats
            for request_id, events in self.events.items()
            for event in events
            if event.finish in ("stop", "length")
            and event.stats is not None
            and all(getattr(self.taken[request_id].sampling, name) == kind[name] for name in kind)
        ]

    def check_end(self) -> None:
        stats = self.engine.stats()
        assert stats.blocks_free == stats.blocks_total
        assert self.events.keys() == self.taken.keys()
        for request_id, request in self.taken.items():
            _check_completion(request, self.events[request_id])


def _check_completion(request: Request, events: list[TokenEvent]) -> None:
    sampling, made = request.sampling, []
    _check_scores(request, events)
    for index in range(sampling.n):
        own = [event for event in events if event.index == index]
        last, tokens = own[-1], [token for event in own for token in event.token_ids]
        assert [event.finish is not None for event in own] == [False] * (len(own) - 1) + [True]
        assert last.stats is not None
        assert last.stats.preemptions <= MAX_PREEMPTIONS
        assert last.stats.cached_tokens < len(request.prompt)
        made.append((tokens, last))
        if POISON in request.prompt:
            assert last.finish in ("abort", "error")
    if not sampling.is_ranked:
        for index, (tokens, last) in enumerate(made):
            assert last.stats is not None
            assert last.stats.completion_tokens == len(tokens)
            _check_choice(tokens, last, _alone(request, index))
    elif sampling.best_of is not None:
        _check_ranks(request, [tokens for tokens, last in made if last.score is not None])
    elif all(last.finish in ("stop", "length") for _, last in made):
        assert [(tokens, last.score) for tokens, last in made] == _searched_alone(request)


def _check_scores(request: Request, events: list[TokenEvent]) -> None:
    """Of the prompt, with the first event of choice 0; none where that came too early."""
    wanted = request.sampling.prompt_logprobs
    first = next(event for event in events if event.index == 0)
    assert not any(event.prompt_logprobs for event in events if event is not first)
    if first.prompt_logprobs is None:
        assert wanted is None or not first.token_ids
        return
    assert wanted is not None
    states = _states(request)
    pairs = zip(states, request.prompt[1:], strict=False)
    assert list(first.prompt_logprobs) == [prompt_score(state, token, wanted) for state, token in pairs]


def _states(request: Request) -> list[bytes]:
    """What the fake stores for each token of the prompt; its adapter may hold from some token on only."""
    prompt, invocation = request.prompt, INVOCATIONS.get(request.adapter or "", ())
    holds_from = activation(prompt, invocation)
    states: list[bytes] = []
    for place, token in enumerate(prompt):
        adapter = request.adapter if place >= holds_from else None
        states.append(next_state(states[-1] if states else START, adapter, token))
    return states


def _check_ranks(request: Request, handed_out: list[list[int]]) -> None:
    """Choices of their own, the likeliest first; the fake's logprob of a token is its negative."""
    made = [_alone(request, index) for index in range(request.sampling.best_of or 0)]
    assert all(tokens in made for tokens in handed_out)
    assert handed_out == sorted(handed_out, key=lambda tokens: sum(tokens) / len(tokens))


def _check_choice(tokens: list[int], last: TokenEvent, alone: list[int]) -> None:
    assert tokens == (alone if last.finish in ("stop", "length") else alone[: len(tokens)])


def _alone(request: Request, index: int) -> list[int]:
    sampling = request.sampling
    seed = (sampling.seed or 0) + index
    invocation = INVOCATIONS.get(request.adapter or "", ())
    return expected(
        request.prompt, sampling.max_tokens, seed=seed, adapter=request.adapter, invocation=invocation
    )


def _weights(digest: str) -> FakeWeights:
    return FakeWeights(digest, INVOCATIONS[digest])


def _searched_alone(request: Request) -> list[tuple[list[int], float | None]]:
    """What an engine with room for all makes of it, each choice with its score."""
    engine = fake_engine(FakeRunner(num_blocks=200), max_model_len=200, prefix_cache=False)
    if request.adapter is not None:
        engine.add_adapter(_weights(request.adapter))
    engine.add(request)
    events: list[TokenEvent] = []
    while engine.has_work:
        events += engine.step()
    return [(list(event.token_ids), event.score) for event in events]


def _some_action(draw: Random) -> tuple[str, Any]:
    kind = draw.choices(
        ["step", "add", "fork", "abort", "break", "load", "unload"], [60, 25, 8, 4, 0.2, 1, 1]
    )[0]
    numbers = {
        "step": 1,
        "abort": draw.randrange(100),
        "fork": (draw.randrange(100), draw.randint(1, 30), draw.randrange(3)),
        "load": draw.choice(DIGESTS),
        "unload": draw.choice(DIGESTS),
        "break": 0,
    }
    about = {
        "family": draw.randrange(8),
        "prompt_len": draw.randint(1, 30),
        "max_tokens": draw.randint(20, 140),
        "adapter": draw.choice([*[None] * 5, *DIGESTS]),
        "cache_salt": draw.choice(["", "", "t"]),
        "priority": draw.randrange(2),
        "seed": draw.randrange(3),
        "poisoned": draw.randrange(20) == 0,
        "choices": draw.choice([{}, {}, {}, *CHOICES]),
        "scored": draw.choice([None, None, None, 3]),
    }
    return kind, numbers.get(kind, about)


@pytest.mark.parametrize(
    ("seed", "windows", "num_blocks", "num_host_blocks"),
    [
        (0, (None,), 18, 0),
        (1, (None,), 18, 4),
        (2, (None,), 18, 12),
        (5, (24,), 11, 0),
        (7, (40,), 12, 12),
        (5, (None, 24), 24, 12),
        (6, (None, 40, 40, 17), 52, 20),
    ],
)
def test_ten_thousand_steps_with_everything_that_can_happen(
    seed: int, windows: tuple[int | None, ...], num_blocks: int, num_host_blocks: int
) -> None:
    draw = Random(seed)
    runner = FakeRunner(num_blocks, num_host_blocks=num_host_blocks, windows=windows, poison=POISON)
    told = History(runner, {"max_num_seqs": 8, "max_batched_tokens": 40, "adapter_slots": 2})
    for digest in DIGESTS[:4]:
        told.load(digest)
    while len(runner.plans) < 2000:
        told.do(*_some_action(draw))
    told.finish()
    stats = told.engine.stats()
    assert min(stats.preemptions, stats.evictions, stats.prefix_hits) > 0
    assert (stats.swaps > 0) == (runner.num_host_blocks > 0)
    assert all(told.finished(kind) for kind in CHOICES)
    assert told.most_parked > 0
    assert any(account.preemptions for kind in CHOICES for account in told.finished(kind))


@settings(max_examples=150)
@given(
    sizes=st.fixed_dictionaries(
        {
            "max_num_seqs": st.integers(1, 5),
            "max_batched_tokens": st.integers(5, 40),
            "adapter_slots": st.integers(1, 3),
        }
    ),
    num_blocks=st.integers(4, 14),
    num_host_blocks=st.sampled_from([0, 4, 30]),
    windows=st.sampled_from([(None,), (1,), (20,), (33,), (None, 20), (None, 33, 1)]),
    history=st.lists(actions, max_size=50),
)
def test_every_request_ends_once_and_as_if_alone(
    sizes: dict[str, int],
    num_blocks: int,
    num_host_blocks: int,
    windows: tuple[int | None, ...],
    history: list[tuple[str, Any]],
) -> None:
    pools = {"num_blocks": num_blocks, "num_host_blocks": num_host_blocks, "windows": windows}
    runner = FakeRunner(**pools, poison=POISON)
    told = History(runner, sizes)
    for digest in DIGESTS[:4]:
        told.load(digest)
    for action, value in history:
        told.do(action, value)
    told.finish()
