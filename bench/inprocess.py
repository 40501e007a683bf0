"""The engine driven in this process, without HTTP: the same closed loop and the same figures as over it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.adapters import random_adapter
from bench.client import OnDone
from bench.figures import Figures, Outcome, summarise
from bench.loads import LOWEST_ID, Load, make_prompts
from bench.measured import Measured
from engine import Engine, EngineConfig, Request, SamplingParams, TokenEvent, read_spec


@dataclass(slots=True)
class _Live:
    sent: float
    prompt_tokens: int
    arrivals: list[float] = field(default_factory=list)


def drive(
    engine: Engine,
    load: Load,
    prompts: Sequence[Sequence[int]],
    adapters: Sequence[str],
    on_done: OnDone,
) -> list[Outcome]:
    """Offer the load to an idle engine; requests take `adapters`, digests of loaded ones, in turn."""
    sampling = SamplingParams(max_tokens=load.output_tokens, temperature=0.0, ignore_eos=True)
    waiting = iter(enumerate(prompts))
    live: dict[str, _Live] = {}
    outcomes: list[Outcome] = []

    def send() -> None:
        number, prompt = next(waiting, (0, None))
        if prompt is not None:
            adapter = adapters[number % len(adapters)] if adapters else None
            live[str(number)] = _Live(time.perf_counter(), len(prompt))
            engine.add(Request(str(number), tuple(prompt), sampling, adapter))

    for _ in range(load.streams):
        send()
    while live:
        events = engine.step()
        now = time.perf_counter()
        for event in events:
            live[event.request_id].arrivals += [now] * len(event.token_ids)
            if event.finish:
                outcomes.append(_outcome(live.pop(event.request_id), event, now))
                on_done()
                send()
    return outcomes


def measure(config: EngineConfig, load: Load, rounds: int, on_done: OnDone) -> Measured:
    """Drive an engine of its own with every adapter slot filled, warmed up by a request. Raises NoFigures."""
    engine, spec = Engine(config), read_spec(config.model)
    digests = []
    for number in range(config.adapter_slots):
        weights = random_adapter(spec, config.max_lora_rank, number)
        engine.add_adapter(engine.prepare_adapter(weights))
        digests.append(weights.digest)
    engine.generate([[LOWEST_ID] * 16], SamplingParams(max_tokens=8, temperature=0.0))
    found = Measured("engine", load)

    def run() -> Figures:
        return summarise(drive(engine, load, make_prompts(load, seed=time.time_ns()), digests, on_done))

    for _ in range(rounds):
        found.take(run)
    return found


def _outcome(request: _Live, event: TokenEvent, now: float) -> Outcome:
    return Outcome(
        request.sent,
        now,
        tuple(request.arrivals),
        request.prompt_tokens,
        len(request.arrivals),
        event.error,
    )
