"""Engines over the fake runner, and what tests ask of them."""

from typing import Any

from engine.engine import Engine
from engine.fake_runner import FakeRunner, fake_engine
from engine.records import Request, SamplingParams, TokenEvent


def engine_on(runner: FakeRunner, **settings: Any) -> Engine:
    return fake_engine(
        runner, **({"max_num_seqs": 8, "max_batched_tokens": 64, "adapter_slots": 2} | settings)
    )


def request(id: str, prompt: range | list[int], max_tokens: int = 8, **more: Any) -> Request:
    about = {name: more.pop(name) for name in ("adapter", "cache_salt", "priority") if name in more}
    sampling = SamplingParams(max_tokens=max_tokens, **({"seed": 1, "ignore_eos": True} | more))
    return Request(id, tuple(prompt), sampling, **about)


def run_to_end(engine: Engine) -> dict[str, list[TokenEvent]]:
    events: dict[str, list[TokenEvent]] = {}
    while engine.has_work:
        for event in engine.step():
            events.setdefault(event.request_id, []).append(event)
    return events


def tokens(events: list[TokenEvent]) -> list[int]:
    return [token_id for event in events for token_id in event.token_ids]


def all_blocks_are_free(engine: Engine) -> bool:
    stats = engine.stats()
    return stats.blocks_free == stats.blocks_total and stats.running == stats.waiting == 0
