"""Grammars on models that compute: rows without one are to the bit as they are alone, the others valid."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine.config import Backend, EngineConfig
from engine.engine import Engine
from engine.grammar import Grammar
from engine.records import Request, TokenEvent
from engine.tokenizer import Tokenizer
from tests.unit.engine.conftest import byte_level_encoder, save_tiny
from tests.unit.engine.grammars import answers, asked, schema, text_of, token_ids

THING = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "parts": {"type": "array", "maxItems": 2}},
    "required": ["name"],
    "additionalProperties": False,
}
THING["properties"]["parts"]["items"] = {"$ref": "#"}  # type: ignore[index]
REGEX = "[a-z]{3,30}( [0-9]{2}){1,4}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = save_tiny("llama", tmp_path_factory.mktemp("model"), vocab_size=440)
    byte_level_encoder().save(str(model.folder / "tokenizer.json"))
    return model.folder


def engine_on(folder: Path, backend: Backend, **settings: Any) -> Engine:
    return Engine(EngineConfig(model=folder, backend=backend, threads=1, check_integrity=True, **settings))


def requests(temperature: float) -> list[Request]:
    def one(name: str, grammar: Grammar | None, tokens: int, **more: Any) -> Request:
        return asked(name, grammar, tokens, temperature=temperature, **more)

    return [
        one("plain", None, 120, ignore_eos=True),
        one("plain, too", None, 120, logprobs=2, ignore_eos=True),
        one("thing", schema(THING), 110),
        one("words", Grammar("regex", REGEX), 60, n=3),
        one("chosen", Grammar("choice", '["the fox", "the dog"]'), 20),
    ]


def check(request: Request, events: list[TokenEvent], tokenizer: Tokenizer) -> None:
    if request.sampling.grammar is None or events[-1].finish == "length":
        return
    assert events[-1].finish == "stop"
    text = text_of(events, tokenizer)
    match request.sampling.grammar.kind:
        case "json_schema":
            jsonschema.validate(json.loads(text), THING)
        case "regex":
            assert re.fullmatch(REGEX, text)
        case _:
            assert text in ("the fox", "the dog")


@pytest.mark.parametrize("temperature", [0.0, 1.0, 5.0])
def test_rows_come_out_in_company_and_preempted_as_they_do_alone(folder: Path, temperature: float) -> None:
    tokenizer, wanted = Tokenizer(folder), requests(temperature)
    together = answers(engine_on(folder, "native", num_blocks=200), *wanted)
    crowded = engine_on(folder, "native", num_blocks=9, max_model_len=140)
    squeezed = answers(crowded, *wanted)
    assert crowded.stats().preemptions > 0
    alone = engine_on(folder, "native", num_blocks=200)
    for request in wanted:
        by_itself = answers(alone, request)
        for key, events in by_itself.items():
            check(request, events, tokenizer)
            assert token_ids(events) == token_ids(together[key]) == token_ids(squeezed[key])


def test_a_penalty_or_a_bias_does_not_break_a_grammar(folder: Path) -> None:
    tokenizer = Tokenizer(folder)
    bias = tuple((token_id, 100.0) for token_id in range(0, 400, 3))
    wanted = [
        asked("bias", Grammar("regex", REGEX), 80, logit_bias=bias),
        asked("penalty", Grammar("regex", REGEX), 80, repetition_penalty=5.0, presence_penalty=2.0),
        asked("few", Grammar("regex", REGEX), 80, top_k=3, top_p=0.5, min_p=0.2, temperature=2.0),
    ]
    got = answers(engine_on(folder, "reference", num_blocks=200), *wanted)
    for request in wanted:
        assert got[request.id, 0][-1].finish == "stop"
        check(request, got[request.id, 0], tokenizer)
