"""Grammars compiled for one model's tokens, and guides made of them. Knows no requests and no logits.

The compiler is llguidance's. It works within limits, on any thread, without the interpreter's lock; what it
has made is kept, the longest unused going first. Nothing of it is loaded before the first grammar comes.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from pathlib import Path
from threading import Lock

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from engine.errors import BadGrammar, UnsupportedModel
from engine.grammar import Grammar
from engine.grammar_form import compiler_form
from engine.grammar_tokens import compiler_tokens
from engine.guide import Guide, Tables, said
from engine.token_mask import tokens_of
from engine.tokenizer import Tokenizer

MAX_KEPT = 64
MAX_KEPT_CHARS = 1 << 20
LIMITS = LLParserLimits(max_lexer_states=100_000, verbose_errors=False)
"""Those of the library beside: what it takes to compile (1,000,000 units of 20 ns, 500,000 symbols) and to
make one mask (200,000 units of 70 ns, 50,000 items)."""
TRIED_TOKENS = 4
"""Behind the beginning of a sentence; what is too wide for the parser mostly shows there."""
_NOTHING = "nothing satisfies it"
_NO_TOKEN = "NoExtensionBias"
"""What the library calls a place where nothing may follow."""


class PreparedGrammar:
    """A grammar that has been compiled, at its beginning. Requests share it; a guide is a copy."""

    def __init__(self, matcher: LLMatcher, end_ids: frozenset[int]) -> None:
        self._tables = Tables()
        self._guide = Guide(matcher, end_ids, self._tables)

    @property
    def is_sound(self) -> bool:
        """Whether no guide has failed: another one might, where what they share is full."""
        return not self._tables.failed

    def guide(self) -> Guide:
        """A guide for a new sequence."""
        return self._guide.copy()


class Guidance:
    """Compiles for the tokenizer of one folder. Threads may share it.

    vocab_size: tokens of the model, at least those of the tokenizer; the others are never allowed.
    end_ids: tokens that end a completion.
    """

    def __init__(self, folder: Path, vocab_size: int, end_ids: frozenset[int]) -> None:
        self._folder = folder
        self._vocab_size = vocab_size
        self._end_ids = end_ids
        self._lock = Lock()
        self._opening = Lock()
        self._kept: OrderedDict[Grammar, PreparedGrammar] = OrderedDict()

    def kept(self, grammar: Grammar) -> PreparedGrammar | None:
        """What has been compiled of it, where that is still there."""
        with self._lock:
            found = self._kept.get(grammar)
            if found is None or not found.is_sound:
                return None
            self._kept.move_to_end(grammar)
            return found

    def prepare(self, grammar: Grammar) -> PreparedGrammar:
        """Compile it, unless that is kept; takes up to about a second. Raises BadGrammar, GrammarTooComplex.

        Raises UnsupportedModel where the folder has no tokenizer that a grammar can be compiled for.
        """
        if (found := self.kept(grammar)) is not None:
            return found
        prepared = PreparedGrammar(self._compile(grammar), self._end_ids)
        with self._lock:
            self._kept[grammar] = prepared
            self._kept.move_to_end(grammar)
            while len(self._kept) > MAX_KEPT or self._kept_chars > MAX_KEPT_CHARS:
                self._kept.popitem(last=False)
        return prepared

    @property
    def _kept_chars(self) -> int:
        return sum(grammar.chars for grammar in self._kept)

    def _compile(self, grammar: Grammar) -> LLMatcher:
        with self._opening:
            tokenizer, tokens = self._tokenizer, self._tokens
        form = compiler_form(grammar, after_space=tokenizer.drops_first_space)
        matcher = LLMatcher(tokens, form, log_level=0, limits=LIMITS)
        if matcher.is_error():
            raise _refused(grammar.param, matcher)
        self._try(matcher.deep_copy(), grammar.param)
        if matcher.get_grammar_warnings():
            raise BadGrammar(grammar.param, "; ".join(matcher.get_grammar_warnings()))
        return matcher

    def _try(self, matcher: LLMatcher, param: str) -> None:
        """Follow it for some tokens: a language without a sentence shows at the first, one too wide soon."""
        for _ in range(TRIED_TOKENS):
            mask = matcher.compute_bitmask()
            if matcher.is_error():
                raise _refused(param, matcher)
            if not any(mask):
                raise BadGrammar(param, _NOTHING)
            after = tokens_of(mask, self._vocab_size)
            after[list(self._end_ids)] = False
            if matcher.is_stopped() or not after.any():
                return
            if not matcher.consume_token(int(after.argmax())):
                raise _refused(param, matcher)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer(self._folder)

    @cached_property
    def _tokens(self) -> LLTokenizer:
        own = self._tokenizer
        if not self._end_ids or own.vocab_size > self._vocab_size:
            raise UnsupportedModel(
                f"{self._folder} has {len(self._end_ids)} end tokens and {own.vocab_size} tokens; "
                f"a grammar needs 1 end token or more, and at most the model's {self._vocab_size} tokens"
            )
        return compiler_tokens(own, self._vocab_size, self._end_ids)


def _refused(param: str, matcher: LLMatcher) -> BadGrammar:
    reason = said(matcher)
    return BadGrammar(param, _NOTHING if _NO_TOKEN in reason else reason)
