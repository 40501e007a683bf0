"""Sampling parameters of one request and what values they may have. Knows no logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engine.errors import BadGrammar, InvalidParameter
from engine.grammar import Grammar

EarlyStopping = bool | Literal["never"]

MAX_LOGPROBS = 20
MAX_CHOICES = 256
MAX_BIASES = 1024
MAX_BAD_WORDS = 256
MAX_BAD_WORD_TOKENS = 64
_SEED_LIMIT = 1 << 63
MOST_BIAS = 100.0
_MOST_LENGTH_PENALTY = 10.0
"""Either way: the power of any length is a number by which a score can be divided."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the tokens of one request are chosen.

    max_tokens: most tokens to generate; clamped at add() to the room the model length leaves.
    temperature: 0 is greedy. top_k: 0 is off. top_p: 1 is off. min_p: 0 is off.
    presence_penalty, frequency_penalty: over generated tokens; 0 is off.
    repetition_penalty: over prompt and generated tokens; 1 is off.
    seed: same seed, same tokens, whatever else is in the batch; None draws one.
    stop_token_ids: end the completion beside the model's own end tokens (which ignore_eos disables).
    min_tokens: no token that would end the completion is sampled before this many.
    logprobs: None for none, 0 for the sampled token, k for the k likeliest as well.
    n: choices to make of one prompt; choice i draws with seed + i.
    best_of: make so many, at least n, and hand out the n of the highest logprob per token, best first;
        None makes n.
    beam_width: search with so many beams instead of sampling, and hand out the n best hypotheses, best
        first. None samples. Needs temperature 0 and nothing else that would change the logits.
    length_penalty: a hypothesis of t tokens scores its summed logprob / t ** length_penalty, -10 to 10.
    early_stopping: when a search that has beam_width hypotheses ends. True: at once. False: when the best
        beam, at its present length, scores no more than the worst hypothesis. "never": when it could not
        at any length up to max_tokens. As in transformers' GenerationConfig.
    logit_bias: (token id, value) with -100 <= value <= 100, added to its logit.
    allowed_token_ids: no other token is sampled; None allows all.
    bad_words: token sequences; the last of one is not sampled where the others have just been generated.
    prompt_logprobs: as logprobs, of each prompt token but the first, given those before it. Such a prompt is
        computed whole: the prefix cache is not looked up.
    grammar: the completion is a sentence of it, unless it is cut at max_tokens or by a stop token of the
        request. It ends where nothing but the end may follow, also before min_tokens and with ignore_eos.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None
    n: int = 1
    best_of: int | None = None
    beam_width: int | None = None
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    prompt_logprobs: int | None = None
    grammar: Grammar | None = None

    @property
    def is_ranked(self) -> bool:
        """Whether choices are handed out by their logprobs, when all have ended."""
        return self.beam_width is not None or (self.best_of is not None and self.best_of > self.n)

    @property
    def num_sequences(self) -> int:
        """Most sequences that run for it at once."""
        return self.beam_width or self.best_of or self.n

    def validate(self) -> None:
        """Raises InvalidParameter naming the first parameter that is wrong."""
        _integer("max_tokens", self.max_tokens, 1)
        _number("temperature", self.temperature, 0.0)
        _number("top_p", self.top_p, 0.0, 1.0, above_low=True)
        _integer("top_k", self.top_k, 0)
        _number("min_p", self.min_p, 0.0, 1.0)
        _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _number("repetition_penalty", self.repetition_penalty, 0.0, above_low=True)
        if self.seed is not None:
            _integer("seed", self.seed, -_SEED_LIMIT, _SEED_LIMIT - 1)
        for token_id in self.stop_token_ids:
            _integer("stop_token_ids", token_id, 0)
        if not isinstance(self.ignore_eos, bool):
            raise InvalidParameter("ignore_eos", self.ignore_eos, "true or false")
        _integer("min_tokens", self.min_tokens, 0, self.max_tokens)
        for param in ("logprobs", "prompt_logprobs"):
            if (wanted := getattr(self, param)) is not None:
                _integer(param, wanted, 0, MAX_LOGPROBS)
        self._validate_tokens()
        self._validate_choices()

    def _validate_tokens(self) -> None:
        _few("logit_bias", self.logit_bias, MAX_BIASES, "tokens")
        for token_id, bias in self.logit_bias:
            _integer("logit_bias", token_id, 0)
            _number("logit_bias", bias, -MOST_BIAS, MOST_BIAS)
        _once("logit_bias", [token_id for token_id, _ in self.logit_bias])
        if self.allowed_token_ids is not None:
            if not self.allowed_token_ids:
                raise InvalidParameter("allowed_token_ids", [], "at least 1 token id")
            for token_id in self.allowed_token_ids:
                _integer("allowed_token_ids", token_id, 0)
            _once("allowed_token_ids", self.allowed_token_ids)
        _few("bad_words", self.bad_words, MAX_BAD_WORDS, "token sequences")
        for word in self.bad_words:
            if not 1 <= len(word) <= MAX_BAD_WORD_TOKENS:
                allowed = f"sequences of 1 to {MAX_BAD_WORD_TOKENS} tokens"
                raise InvalidParameter("bad_words", f"{len(word)} tokens long", allowed)
            for token_id in word:
                _integer("bad_words", token_id, 0)

    def _validate_choices(self) -> None:
        _integer("n", self.n, 1, MAX_CHOICES)
        if self.best_of is not None:
            _integer("best_of", self.best_of, self.n, MAX_CHOICES)
        _number("length_penalty", self.length_penalty, -_MOST_LENGTH_PENALTY, _MOST_LENGTH_PENALTY)
        if not (isinstance(self.early_stopping, bool) or self.early_stopping == "never"):
            raise InvalidParameter("early_stopping", self.early_stopping, "true, false or 'never'")
        if self.beam_width is not None:
            _integer("beam_width", self.beam_width, self.n, MAX_CHOICES)
            if self.grammar is not None:
                raise BadGrammar(self.grammar.param, "a beam search follows no grammar")
            for param, neutral in _NEUTRAL_IN_BEAMS.items():
                if (value := getattr(self, param)) != neutral:
                    raise InvalidParameter(param, value, f"{neutral} in a beam search")


def moved_seed(seed: int, index: int) -> int:
    """The seed of choice `index`: moved on by it, within 64 bits."""
    return (seed + index + _SEED_LIMIT) % (2 * _SEED_LIMIT) - _SEED_LIMIT


_NEUTRAL_IN_BEAMS = {
    "best_of": None,
    "temperature": 0,
    "top_p": 1,
    "top_k": 0,
    "min_p": 0,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "repetition_penalty": 1,
    "logit_bias": (),
    "allowed_token_ids": None,
    "bad_words": (),
}


def _few(param: str, items: tuple[object, ...], most: int, what: str) -> None:
    if len(items) > most:
        raise InvalidParameter(param, f"{len(items)} {what}", f"at most {most}")


def _once(param: str, token_ids: Sequence[int]) -> None:
    seen: set[int] = set()
    for token_id in token_ids:
        if token_id in seen:
            raise InvalidParameter(param, token_id, "each token id once")
        seen.add(token_id)


def _integer(param: str, value: object, low: int, high: int | None = None) -> None:
    allowed = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidParameter(param, value, allowed)
    if value < low or (high is not None and value > high):
        raise InvalidParameter(param, value, allowed)


def _number(
    param: str, value: object, low: float = -math.inf, high: float | None = None, *, above_low: bool = False
) -> None:
    allowed = "a finite number"
    if low > -math.inf:
        allowed += f" {'>' if above_low else '>='} {low:g}"
    if high is not None:
        allowed += f" and <= {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidParameter(param, value, allowed)
    if value < low or (above_low and value == low) or (high is not None and value > high):
        raise InvalidParameter(param, value, allowed)
