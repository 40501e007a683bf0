"""What the prefix cache gives and what it costs.

Gain: the first token of a second request over a shared prefix beside that of the first. Cost: what the engine
itself spends more with the cache than without when no prompt shares anything, as a part of all the time.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench.client import OnDone, Target, offer
from bench.errors import NoFigures
from bench.figures import Outcome
from bench.inprocess import drive
from bench.loads import Load, make_prompts
from bench.stopwatch import Place, Stopwatch
from engine import Engine, EngineConfig
from engine.ports import ModelRunner
from engine.runner import Runner, build_runner

Offer = Callable[[Load, list[list[int]]], list[Outcome]]
OWN_TOKENS = 16
"""Tokens of a prompt behind the shared prefix."""
UNSHARED = Load(streams=4, requests=8, prompt_tokens=512, output_tokens=64)
"""What the cost is measured under."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Milliseconds to the first token of each pair: the first request and the one that shares its prefix."""

    first_ms: tuple[float, ...]
    second_ms: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median of second over first."""
        pairs = zip(self.second_ms, self.first_ms, strict=True)
        return statistics.median(second / first for second, first in pairs)


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds that the engine spends outside its model in each run, and all of the run without cache."""

    with_cache_ms: tuple[float, ...]
    without_ms: tuple[float, ...]
    run_ms: tuple[float, ...]

    @property
    def part(self) -> float:
        """Median of what the cache adds, as a part of a run."""
        rounds = zip(self.with_cache_ms, self.without_ms, self.run_ms, strict=True)
        return statistics.median((mine - other) / run for mine, other, run in rounds)


def gain(ask: Offer, prefix_tokens: int, rounds: int) -> Gain:
    """Offer pairs over a fresh prefix each. Raises NoFigures."""
    load = Load(
        streams=1,
        requests=2,
        prompt_tokens=prefix_tokens + OWN_TOKENS,
        output_tokens=8,
        shared_prefix=prefix_tokens,
    )
    pairs = []
    for _ in range(rounds):
        first, second = ask(load, make_prompts(load, seed=time.time_ns()))
        for outcome in (first, second):
            if outcome.error is not None:
                raise NoFigures(f"a request failed: {outcome.error}")
        pairs.append((first.ttft_s * 1e3, second.ttft_s * 1e3))
    return Gain(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))


def over_http(url: str, model: str, on_done: OnDone) -> Offer:
    """Offer to a server."""
    target = Target("server", url, (model,))
    return lambda load, prompts: asyncio.run(offer(target, load, prompts, on_done))


def in_process(engine: Engine, on_done: OnDone) -> Offer:
    """Offer to an engine of this process."""
    return lambda load, prompts: drive(engine, load, prompts, (), on_done)


def engines(model: Path) -> tuple[Engine, Engine]:
    """An engine with prefix cache and one without, on one model; only one of them may work at a time."""
    config = EngineConfig(model=model)
    runner: ModelRunner = build_runner(config)
    return Engine(config, runner=runner), Engine(replace(config, prefix_cache=False), runner=runner)


def cost(with_cache: Engine, without: Engine, load: Load, rounds: int, on_done: OnDone) -> Cost:
    """Offer prompts that share nothing to both engines in alternation."""
    found: tuple[list[float], list[float], list[float]] = ([], [], [])
    for _ in range(rounds):
        own, _ = _spent(with_cache, load, on_done)
        other, run = _spent(without, load, on_done)
        for values, value in zip(found, (own, other, run), strict=True):
            values.append(value)
    return Cost(*map(tuple, found))


def _spent(engine: Engine, load: Load, on_done: OnDone) -> tuple[float, float]:
    """Milliseconds outside the model, and in all."""
    stopwatch = Stopwatch()
    prompts = make_prompts(load, seed=time.time_ns())
    with stopwatch.watching((Place(Engine, "step", "engine"), Place(Runner, "run", "model"))):
        drive(engine, load, prompts, (), on_done)
    return 1e3 * stopwatch.seconds["engine"], 1e3 * sum(stopwatch.seconds.values())
