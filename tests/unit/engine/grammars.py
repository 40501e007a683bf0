"""Engines over the fake runner that follow grammars, and what tests ask of their answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.engine import Engine
from engine.fake_runner import FakeRunner, fake_engine
from engine.grammar import Grammar
from engine.records import Request, SamplingParams, TokenEvent
from engine.tokenizer import Tokenizer

SPARE = 40
"""Tokens that the model has and the tokenizer has not."""


def guided_engine(folder: Path, ends: tuple[str, ...], **settings: Any) -> Engine:
    """An engine whose model has the folder's tokens and some more; `settings` are the runner's or its own."""
    tokenizer = Tokenizer(folder)
    runner = FakeRunner(
        vocab_size=tokenizer.vocab_size + SPARE,
        eos_token_ids=end_ids(folder, ends),
        **{name: settings.pop(name) for name in ("num_blocks", "before_run") if name in settings},
    )
    return fake_engine(runner, **{"model": folder, "max_num_seqs": 16, **settings})


def end_ids(folder: Path, ends: tuple[str, ...]) -> frozenset[int]:
    tokenizer = Tokenizer(folder)
    return frozenset(tokenizer.encode(end, add_special_tokens=False)[-1] for end in ends)


def schema(value: Any) -> Grammar:
    return Grammar("json_schema", json.dumps(value))


def asked(name: str, grammar: Grammar | None, max_tokens: int = 400, **sampling: Any) -> Request:
    prompt = sampling.pop("prompt", (40, 41, 42))
    params = SamplingParams(max_tokens, **({"seed": len(name), "grammar": grammar} | sampling))
    return Request(name, prompt, params)


def answers(engine: Engine, *requests: Request) -> dict[tuple[str, int], list[TokenEvent]]:
    """Events of each choice of each request, to the end."""
    for request in requests:
        engine.add(request)
    events: dict[tuple[str, int], list[TokenEvent]] = {}
    while engine.has_work:
        for event in engine.step():
            events.setdefault((event.request_id, event.index), []).append(event)
    return events


def token_ids(events: list[TokenEvent]) -> list[int]:
    return [token_id for event in events for token_id in event.token_ids]


def text_of(events: list[TokenEvent], tokenizer: Tokenizer) -> str:
    """What a client reads: the token that ended the answer is no part of it."""
    ids = token_ids(events)
    return tokenizer.decode(ids if events[-1].stop_token is None else ids[:-1])
