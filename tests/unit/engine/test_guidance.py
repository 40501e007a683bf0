"""Grammars are compiled within limits and kept; what cannot be enforced is refused before anything runs."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.errors import BadGrammar, GrammarTooComplex, GuideFailed, UnsupportedModel
from engine.grammar import Grammar
from engine.grammar_form import MAX_CHARS, MAX_GBNF_CHARS
from engine.guidance import MAX_KEPT, Guidance
from engine.guide import Guide
from engine.token_mask import tokens_of
from engine.tokenizer import Tokenizer
from tests.unit.engine.conftest import byte_level_encoder, write_tokenizer
from tests.unit.engine.grammars import SPARE, end_ids, schema

ENDS = ("<|im_end|>", "<|endoftext|>")
NAMES = [f"word{number}" for number in range(3000)]
LOOP = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(root, byte_level_encoder())
    return root


@pytest.fixture
def guidance(folder: Path) -> Guidance:
    return Guidance(folder, Tokenizer(folder).vocab_size + SPARE, end_ids(folder, ENDS))


def allowed(guide: Guide, folder: Path) -> set[int]:
    guide.begin()
    guide.fill()
    return set(tokens_of(guide.mask(), Tokenizer(folder).vocab_size + SPARE).nonzero()[0].tolist())


def follows(guide: Guide, text: str, folder: Path) -> bool:
    """Whether the text is a sentence: its tokens are taken, and then an end token."""
    try:
        over = [guide.advance(token) for token in Tokenizer(folder).encode(text, add_special_tokens=False)]
        return over[-1] or guide.advance(min(end_ids(folder, ENDS)))
    except GuideFailed:
        return False


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("regex", ""),
        Grammar("regex", "("),
        Grammar("regex", "a(?=b)"),
        Grammar("regex", r"(a)\1"),
        Grammar("regex", r"[^\s\S]"),
        schema({"$ref": "#/$defs/missing"}),
        schema({"type": "string", "minLength": 5, "maxLength": 3}),
        schema({"enum": []}),
        schema({"type": "string", "format": "unheard-of"}),
        schema({"type": "object", "properties": {"a": False}, "required": ["a"]}),
        schema({"type": 5}),
        schema({"oneOf": [{"type": "string"}, {"type": "string", "minLength": 3}]}),
        schema({"allOf": [{"anyOf": [{"required": [f"{n}"]}, {"required": [f"b{n}"]}]} for n in range(14)]}),
        Grammar("choice", "[]"),
        Grammar("choice", '["a", ""]'),
        Grammar("choice", '["a", 1]'),
        Grammar("choice", '"a"'),
        Grammar("choice", "["),
        Grammar("lark", ""),
        Grammar("lark", "start: missing"),
        Grammar("lark", '{"grammars": [{"lark_grammar": "start: \\"a\\""}]}'),
        Grammar("lark", 'root ::= "a" missing'),
        Grammar("lark", 'root ::= "\\'),
        Grammar("lark", "root ::= " + "(" * 5000),
    ],
)
def test_bad_grammars_are_refused_by_the_name_of_their_parameter(
    guidance: Guidance, grammar: Grammar
) -> None:
    named = Grammar(grammar.kind, grammar.text, "guided")
    with pytest.raises(BadGrammar, match="guided") as refused:
        guidance.prepare(named)
    assert refused.value.param == "guided"
    assert "<state>" not in str(refused.value)
    assert guidance.prepare(Grammar("regex", "fine"))


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("regex", "a" * (MAX_CHARS + 1)),
        schema({"enum": ["x" * (1 << 20)]}),
        Grammar("lark", "root ::= " + '"a" ' * MAX_GBNF_CHARS),
    ],
)
def test_texts_that_are_too_long_are_refused(guidance: Guidance, grammar: Grammar) -> None:
    with pytest.raises(GrammarTooComplex, match=str(len(grammar.text))):
        guidance.prepare(grammar)


@pytest.mark.parametrize(
    ("grammar", "sentence", "other"),
    [
        (Grammar("regex", "(a+)+b"), "aaab", "aaa"),
        (Grammar("regex", "((a{1,100}){1,100}){1,100}"), "aaa", "ab"),
        (Grammar("regex", "|".join(NAMES)), "word77", "word"),
        (Grammar("choice", json.dumps(NAMES)), "word77", "word3000"),
        (Grammar("choice", '["a/b \\"c\\"\\n"]'), 'a/b "c"\n', "a"),
        (Grammar("regex", "^a/b$"), "a/b", "a"),
        (schema({"enum": NAMES}), '"word77"', '"word"'),
        (schema(LOOP | {"required": []}), '{"a":{"a":{}}}', '{"a":1}'),
        (schema({"type": "object"}), '{\n  "a": 1\n}', '{  "a":1}'),
        (schema({"properties": {"a": {"type": "integer"}}}), '{"a": 1}', '{"\\u0061": "x"}'),
        (Grammar("lark", 'start: "a" b*\nb: "c" | %json {"type": "integer"}'), "ac12", "b"),
        (Grammar("lark", 'root ::= "a" item+\nitem ::= [x-z] | "b"'), "axb", "a"),
    ],
)
def test_sentences_are_told_from_others(
    guidance: Guidance, folder: Path, grammar: Grammar, sentence: str, other: str
) -> None:
    prepared = guidance.prepare(grammar)
    assert follows(prepared.guide(), sentence, folder)
    assert not follows(prepared.guide(), other, folder)


def test_special_and_missing_tokens_are_never_allowed_and_end_tokens_at_the_end_alone(
    guidance: Guidance, folder: Path
) -> None:
    tokenizer, ends = Tokenizer(folder), end_ids(folder, ENDS)
    guide = guidance.prepare(Grammar("regex", r"<\|im_start\|>[\s\S]*")).guide()
    assert not {token for token in allowed(guide, folder) if not tokenizer.text_bytes(token)}
    for token in tokenizer.encode("<|im_start", add_special_tokens=False):
        guide.advance(token)
    for token in tokenizer.encode("|>", add_special_tokens=False):
        assert not guide.advance(token)
    got = allowed(guide, folder)
    assert ends < got
    assert max(got) < tokenizer.vocab_size
    assert {token for token in got if not tokenizer.text_bytes(token)} == ends


def test_an_end_token_in_the_middle_is_a_failure(guidance: Guidance, folder: Path) -> None:
    guide = guidance.prepare(Grammar("lark", 'start: <|im_end|> "a"')).guide()
    with pytest.raises(GuideFailed, match="ends where"):
        guide.advance(min(allowed(guide, folder)))


def test_a_copy_goes_its_own_way(guidance: Guidance, folder: Path) -> None:
    first = guidance.prepare(Grammar("regex", "ab|cd")).guide()
    before = allowed(first, folder)
    second = first.copy()
    a, c = (Tokenizer(folder).encode(char, add_special_tokens=False)[0] for char in "ac")
    assert not second.advance(a)
    assert not first.advance(c)
    assert {a, c} <= before
    assert not allowed(first, folder) & allowed(second, folder)
    with pytest.raises(GuideFailed):
        second.advance(c)


def test_what_is_used_is_kept_and_what_is_not_makes_room(guidance: Guidance) -> None:
    first = Grammar("regex", "first")
    prepared = guidance.prepare(first)
    for number in range(MAX_KEPT - 1):
        guidance.prepare(Grammar("regex", f"x{number}"))
        assert guidance.prepare(Grammar("regex", "first", "another_name")) is prepared
    assert guidance.kept(Grammar("regex", "x0"))
    guidance.prepare(Grammar("regex", "one more"))
    guidance.prepare(Grammar("regex", "x0"))
    assert guidance.kept(first) is prepared
    assert guidance.kept(Grammar("regex", "x1")) is None


def test_a_grammar_that_has_failed_is_compiled_anew(guidance: Guidance, folder: Path) -> None:
    """What guides share fills up with use, and then fails them all."""
    grammar = Grammar("regex", "ab")
    prepared = guidance.prepare(grammar)
    assert not follows(prepared.guide(), "b", folder)
    assert guidance.kept(grammar) is None
    again = guidance.prepare(grammar)
    assert again is not prepared
    assert guidance.kept(grammar) is again
    assert follows(again.guide(), "ab", folder)


def test_long_grammars_are_kept_in_smaller_number(guidance: Guidance) -> None:
    texts = [f"a{number}{'b' * (MAX_CHARS - 8)}" for number in range(10)]
    for text in texts:
        guidance.prepare(Grammar("regex", text))
    kept = [guidance.kept(Grammar("regex", text)) is not None for text in texts]
    assert kept == [False] * 2 + [True] * 8


def test_threads_prepare_side_by_side(guidance: Guidance, folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(guidance.prepare, [Grammar("regex", f"a{number % 4}") for number in range(32)]))
    assert all(follows(each.guide(), f"a{number % 4}", folder) for number, each in enumerate(made))


def test_a_model_without_end_tokens_follows_no_grammar(folder: Path) -> None:
    with pytest.raises(UnsupportedModel, match="0 end tokens"):
        Guidance(folder, 1000, frozenset()).prepare(Grammar("regex", "a"))


def test_what_the_parser_cannot_follow_from_its_beginning_is_refused_at_once(guidance: Guidance) -> None:
    wide = schema({"type": "object", "properties": {f"p{n}": {"type": "integer"} for n in range(2000)}})
    with pytest.raises(BadGrammar, match="max is 2000"):
        guidance.prepare(wide)


@pytest.mark.parametrize("grammar", [schema({"$ref": "#"}), Grammar("lark", "start: start")])
def test_a_grammar_that_only_means_itself_is_said_to_have_no_sentence(
    guidance: Guidance, grammar: Grammar
) -> None:
    with pytest.raises(BadGrammar, match="nothing satisfies it"):
        guidance.prepare(grammar)


def test_a_panic_of_the_compiler_is_told_without_its_stack(guidance: Guidance) -> None:
    with pytest.raises(BadGrammar) as told:
        guidance.prepare(Grammar("lark", 'start: a "x"\na[lazy]: /.*/'))
    assert "backtrace" not in str(told.value)
