"""More adapters than slots: how soon requests are answered, and what it costs in tokens.

    python -m bench.slots --model FOLDER [--rate 4] [--seconds 20] [--rounds 1]
    python -m bench.slots --model FOLDER --storm

One engine with 8 slots. Requests come at a fixed rate (Poisson arrivals, the same ones in every run), first
spread over 8 adapters, then over 16. With --storm one slot: streams of one adapter without end, and now and
then a request for another. Time to the first token runs from the moment a request was due, not from when the
loop came to look.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import Any

from bench.adapters import random_adapter
from bench.figures import Figures, Outcome, medians, percentile, summarise
from bench.loads import LOWEST_ID, Load, make_prompts
from bench.report import markdown, write_json
from bench.settling import settle
from engine import Engine, EngineConfig, Request, SamplingParams, read_spec

SLOTS = 8
STORM_STREAMS = 8
RANK = 16


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request: seconds after the start when it is due, prompt, tokens wanted, digest of its adapter."""

    due: float
    prompt: tuple[int, ...]
    tokens: int
    adapter: str


@dataclass(slots=True)
class Desk:
    """Hands requests to an engine and writes down when their tokens come."""

    engine: Engine
    start: float = field(default_factory=time.perf_counter)
    done: list[tuple[str, Outcome]] = field(default_factory=list)
    live: dict[str, tuple[Arrival, list[float]]] = field(default_factory=dict)
    _sent: int = 0

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    def send(self, arrival: Arrival) -> None:
        sampling = SamplingParams(max_tokens=arrival.tokens, temperature=0.0, ignore_eos=True)
        name, self._sent = str(self._sent), self._sent + 1
        self.live[name] = arrival, []
        self.engine.add(Request(name, arrival.prompt, sampling, arrival.adapter))

    def step(self) -> list[Arrival]:
        """One step of the engine; requests that have ended with it."""
        events, ended = self.engine.step(), []
        now = self.now
        for event in events:
            arrival, moments = self.live[event.request_id]
            moments += [now] * len(event.token_ids)
            if event.finish is not None:
                del self.live[event.request_id]
                outcome = Outcome(
                    arrival.due, now, tuple(moments), len(arrival.prompt), len(moments), event.error
                )
                self.done.append((arrival.adapter, outcome))
                ended.append(arrival)
        return ended


def poisson(rate: float, seconds: float, load: Load, adapters: Sequence[str], seed: int) -> list[Arrival]:
    """Requests of one size at random moments, the same for any adapters; each is for one of `adapters`."""
    gaps, choice = random.Random(seed), random.Random(seed + 1)
    moments: list[float] = []
    while (due := (moments[-1] if moments else 0.0) + gaps.expovariate(rate)) < seconds:
        moments.append(due)
    prompts = make_prompts(replace(load, requests=max(1, len(moments))), seed)
    return [
        Arrival(due, tuple(prompt), load.output_tokens, choice.choice(adapters))
        for due, prompt in zip(moments, prompts, strict=False)
    ]


def offer(engine: Engine, arrivals: Sequence[Arrival]) -> list[Outcome]:
    """Send each request when it is due, and step until all have ended."""
    desk, waiting = Desk(engine), deque(arrivals)
    while waiting or desk.live:
        while waiting and waiting[0].due <= desk.now:
            desk.send(waiting.popleft())
        if desk.live:
            desk.step()
        else:
            time.sleep(max(0.0, waiting[0].due - desk.now))
    return [outcome for _, outcome in desk.done]


def storm(engine: Engine, load: Load, seconds: float, hot: str, lone: str) -> dict[str, list[Outcome]]:
    """Streams of `hot`, each followed by the next, and one request for `lone` at a time, for so long."""
    draw = random.Random(5)
    prompts = cycle(make_prompts(replace(load, requests=2_000), seed=3))
    desk = Desk(engine)

    def send(adapter: str) -> None:
        desk.send(Arrival(desk.now, tuple(next(prompts)), load.output_tokens, adapter))

    for _ in range(STORM_STREAMS):
        send(hot)
    due = seconds / 10
    while desk.live:
        if due <= desk.now < seconds:
            send(lone)
            due = float("inf")
        for arrival in desk.step():
            if arrival.adapter == lone:
                due = desk.now + draw.uniform(0.05, 0.5)
            elif desk.now < seconds:
                send(hot)
    found: dict[str, list[Outcome]] = {hot: [], lone: []}
    for adapter, outcome in desk.done:
        found[adapter].append(outcome)
    return found


def make_engine(model: Path, slots: int, adapters: int) -> tuple[Engine, list[str]]:
    """An engine that is warm, and the digests of the adapters added to it."""
    engine, spec = Engine(EngineConfig(model=model, adapter_slots=slots)), read_spec(model)
    digests = []
    for number in range(adapters):
        prepared = engine.prepare_adapter(random_adapter(spec, RANK, number))
        engine.add_adapter(prepared)
        digests.append(prepared.digest)
    engine.generate([[LOWEST_ID] * 64], SamplingParams(max_tokens=8, temperature=0.0))
    return engine, digests


def row(name: str, figures: Figures, engine: Engine, changes_before: int) -> list[str]:
    stats = engine.stats()
    return [
        name,
        f"{figures.ttft_p50_ms:.0f}",
        f"{figures.ttft_p99_ms:.0f}",
        f"{figures.output_tok_s:.0f}",
        f"{figures.tpot_p50_ms:.1f}",
        f"{figures.gap_p95_ms:.0f}",
        str(stats.slot_changes - changes_before),
        f"{stats.longest_slot_wait_steps} steps, {stats.longest_slot_wait_s * 1e3:.0f} ms",
    ]


def cliff(arguments: argparse.Namespace, load: Load) -> dict[int, Figures]:
    """The same arrivals over as many adapters as there are slots, and over twice as many."""
    engine, digests = make_engine(arguments.model, SLOTS, 2 * SLOTS)
    runs: dict[int, list[Figures]] = {SLOTS: [], 2 * SLOTS: []}
    rows = {}
    for turn in range(arguments.rounds):
        for count, figures in runs.items():
            settle()
            before = engine.stats().slot_changes
            arrivals = poisson(arguments.rate, arguments.seconds, load, digests[:count], seed=turn)
            figures.append(summarise(offer(engine, arrivals)))
            rows[count] = row(f"{count} adapters", medians(figures), engine, before)
    columns = ["8 slots", "TTFT p50, ms", "p99", "tok/s", "TPOT, ms", "longest pause p95, ms"]
    print(markdown([*columns, "slot changes", "longest wait"], list(rows.values())))
    few, many = (medians(figures) for figures in runs.values())
    print(
        f"TTFT p99 {many.ttft_p99_ms / few.ttft_p99_ms:.2f}, tok/s {many.output_tok_s / few.output_tok_s:.2f}"
    )
    return {SLOTS: few, 2 * SLOTS: many}


def lone(model: Path, seconds: float, load: Load) -> dict[str, float]:
    """One slot under a storm, and what a request for another adapter meets there."""
    engine, (hot, other, *_) = make_engine(model, 1, 2)
    settle()
    found = storm(engine, load, seconds, hot, other)
    waits = [outcome.ttft_s * 1e3 for outcome in found[other]]
    stats, rate = engine.stats(), summarise(found[hot]).output_tok_s
    print(
        f"one slot, {STORM_STREAMS} streams of one adapter: {rate:.0f} tok/s; {len(waits)} requests for "
        f"another: TTFT p50 {percentile(waits, 50):.0f} ms, longest {max(waits):.0f} ms, "
        f"slot after {stats.longest_slot_wait_steps} steps at most"
    )
    return {"ttft_p50_ms": percentile(waits, 50), "ttft_longest_ms": max(waits), "storm_tok_s": rate}


def main() -> None:
    arguments = _parser().parse_args()
    load = Load(streams=1, requests=1, prompt_tokens=arguments.prompt, output_tokens=arguments.output)
    found: dict[str, Any]
    if arguments.storm:
        found = lone(arguments.model, arguments.seconds, load)
    else:
        found = {str(count): asdict(figures) for count, figures in cliff(arguments, load).items()}
    if arguments.json:
        write_json(arguments.json, found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run")
    parser.add_argument("--prompt", type=int, default=128, help="tokens")
    parser.add_argument("--output", type=int, default=64, help="tokens")
    parser.add_argument("--storm", action="store_true", help="one slot, two adapters")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    return parser


if __name__ == "__main__":
    main()
