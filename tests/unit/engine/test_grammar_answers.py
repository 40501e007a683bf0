"""Whatever a model likes to say, its answer is a sentence of the grammar, or the beginning of one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import BadGrammar
from engine.grammar import Grammar
from engine.guidance import Guidance
from engine.records import Request, TokenEvent
from engine.tokenizer import Tokenizer
from tests.unit.engine.conftest import byte_fallback_encoder, byte_level_encoder, write_tokenizer
from tests.unit.engine.grammars import answers, asked, end_ids, guided_engine, schema, text_of, token_ids

FOLDERS = {"byte_level": ("<|im_end|>", "<|endoftext|>"), "byte_fallback": ("</s>",)}
RUNS = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp(request.param) / str(request.param)
    encoder = byte_level_encoder if request.param == "byte_level" else byte_fallback_encoder
    write_tokenizer(root, encoder())
    return root


def schemas(depth: int = 2) -> st.SearchStrategy[dict[str, Any]]:
    leaves = st.one_of(
        st.sampled_from(
            [
                {"type": "boolean"},
                {"type": "null"},
                {"type": "integer", "minimum": -9, "maximum": 99},
                {"type": "number", "minimum": 0, "maximum": 5},
                {"type": "string", "pattern": "^[a-c]{1,3}$"},
                {"type": "string", "format": "date"},
                {"const": {"a": [1]}},
            ]
        ),
        st.builds(
            lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more}, ints, ints
        ),
        st.lists(st.sampled_from(["a", "é", 'x"y', 1, None, True]), min_size=1, unique_by=repr).map(
            lambda values: {"enum": values}
        ),
    )
    if not depth:
        return leaves
    inner = schemas(depth - 1)
    return st.one_of(
        leaves,
        st.builds(lambda item, most: {"type": "array", "items": item, "maxItems": most}, inner, ints),
        st.lists(inner, min_size=1, max_size=3).map(lambda of: {"anyOf": of}),
        st.builds(_object, st.lists(inner, max_size=3), st.integers(0, 3)),
    )


ints = st.integers(0, 4)


def _object(parts: list[dict[str, Any]], required: int) -> dict[str, Any]:
    names = [f"é{place}" if place else "name" for place in range(len(parts))]
    return {
        "type": "object",
        "properties": dict(zip(names, parts, strict=True)),
        "required": names[:required],
        "additionalProperties": False,
    }


def regexes() -> st.SearchStrategy[str]:
    atoms = st.sampled_from(["a", "[b-d]", "é", r"\d", " ", "/", "the ", "(?:END|fox)", "[^x]", r"\."])
    repeated = st.builds(str.__add__, atoms, st.sampled_from(["", "?", "{1,3}", "{2}"]))
    joined = st.lists(repeated, min_size=1, max_size=4).map("".join)
    return st.lists(joined, min_size=1, max_size=3).map("|".join)


def grammars() -> st.SearchStrategy[Grammar]:
    texts = st.lists(st.text(st.sampled_from('ab "\\é\n 🙂'), min_size=1, max_size=6), min_size=1, max_size=6)
    return st.one_of(
        schemas().map(schema),
        regexes().map(lambda text: Grammar("regex", text)),
        texts.map(lambda choices: Grammar("choice", json.dumps(choices))),
    )


def holds(grammar: Grammar, text: str) -> bool:
    match grammar.kind:
        case "json_schema":
            jsonschema.validate(json.loads(text), json.loads(grammar.text))
            return True
        case "regex":
            return re.fullmatch(grammar.text, text) is not None
        case _:
            return text in json.loads(grammar.text)


def check(folder: Path, request: Request, events: list[TokenEvent]) -> None:
    tokenizer, grammar = Tokenizer(folder), request.sampling.grammar
    assert grammar is not None
    ids, last = token_ids(events), events[-1]
    if last.finish == "stop":
        assert holds(grammar, text_of(events, tokenizer)), text_of(events, tokenizer)
        return
    assert last.finish == "length", last.error
    ends = end_ids(folder, FOLDERS[folder.name])
    guide = Guidance(folder, tokenizer.vocab_size, ends).prepare(grammar).guide()
    for token_id in ids:
        assert not guide.advance(token_id)


@RUNS
@given(
    wanted=st.lists(grammars(), min_size=1, max_size=5),
    short=st.integers(1, 30),
    options=st.fixed_dictionaries({"ignore_eos": st.booleans(), "min_tokens": st.integers(0, 12)}),
    blocks=st.integers(28, 40),
)
def test_answers_are_sentences_alone_and_in_company_and_preempted(
    folder: Path, wanted: list[Grammar], short: int, options: dict[str, Any], blocks: int
) -> None:
    engine = guided_engine(folder, FOLDERS[folder.name], num_blocks=blocks)
    requests = [
        asked("r" * (1 + n), grammar, seed=n, n=1 + n % 2, **options) for n, grammar in enumerate(wanted)
    ]
    requests.append(asked("cut", wanted[0], max(short, options["min_tokens"]), **options))
    got = answers(engine, *requests, asked("plain", None, 60, ignore_eos=True))
    for request in requests:
        for index in range(request.sampling.n):
            check(folder, request, got[request.id, index])
    alone = guided_engine(folder, FOLDERS[folder.name])
    again = answers(alone, asked("plain", None, 60, ignore_eos=True))
    assert token_ids(again["plain", 0]) == token_ids(got["plain", 0])
    request = requests[len(wanted) - 1]
    for index in range(request.sampling.n):
        again = answers(alone, request)
        assert token_ids(again[request.id, index]) == token_ids(got[request.id, index])


def test_preemption_keeps_the_place_in_the_grammar(folder: Path) -> None:
    engine = guided_engine(folder, FOLDERS[folder.name], num_blocks=20)
    grammar = Grammar("regex", "[a-z ]{150,200}")
    requests = [asked(name, grammar, seed=n) for n, name in enumerate("abc")]
    got = answers(engine, *requests)
    assert engine.stats().preemptions > 0
    for request in requests:
        assert got[request.id, 0][-1].finish == "stop"
        check(folder, request, got[request.id, 0])


def test_an_answer_that_nothing_may_follow_has_ended(folder: Path) -> None:
    engine = guided_engine(folder, FOLDERS[folder.name])
    for options in ({}, {"ignore_eos": True}, {"min_tokens": 30}):
        events = answers(engine, asked("r", Grammar("choice", '["the fox"]'), **options))["r", 0]
        assert events[-1].finish == "stop"
        assert text_of(events, Tokenizer(folder)) == "the fox"


def test_the_end_waits_for_min_tokens_while_something_may_follow(folder: Path) -> None:
    engine = guided_engine(folder, FOLDERS[folder.name])
    for seed in range(5):
        events = answers(engine, asked("r", Grammar("regex", "a*b?"), 60, min_tokens=20, seed=seed))["r", 0]
        assert len(token_ids(events)) > 20 or text_of(events, Tokenizer(folder)).endswith("b")


def test_the_best_of_several_choices_is_a_sentence(folder: Path) -> None:
    engine = guided_engine(folder, FOLDERS[folder.name])
    request = asked("r", Grammar("regex", "[a-d]{3,9}"), n=2, best_of=4)
    got = answers(engine, request)
    for index in range(2):
        check(folder, request, got["r", index])


def test_beams_follow_no_grammar(folder: Path) -> None:
    engine = guided_engine(folder, FOLDERS[folder.name])
    with pytest.raises(BadGrammar, match="beam"):
        engine.add(asked("r", Grammar("regex", "a"), beam_width=2, temperature=0.0))


def test_a_grammar_that_leads_nowhere_fails_its_own_row(folder: Path) -> None:
    """Every token of it is a bad word: nothing is sampled that the grammar does not allow."""
    engine = guided_engine(folder, FOLDERS[folder.name])
    lost = asked("lost", Grammar("regex", "a{50}"), allowed_token_ids=(5,))
    got = answers(engine, lost, asked("fine", Grammar("regex", "a{50}")), asked("plain", None, 30))
    assert got["lost", 0][-1].finish == "error"
    assert got["fine", 0][-1].finish == "stop"
    assert got["plain", 0][-1].finish in ("stop", "length")
