"""Rows of logits to tokens in the native library; see engine.sampler for what is made of a row.

It takes the same token as the sampler in torch, for the same uniform number, unless that falls within the
rounding of float32 on the border of two tokens, or a token lies so close to the border of min_p, top_k or
top_p. Tokens exactly as likely as the last one kept are kept with it in both.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence

from engine.adjustment import has_penalty
from engine.native.library import DrawRow
from engine.records import ScheduledSeq, TokenLogprob
from engine.sampler import GREEDY_BELOW, takes_best, uniform
from engine.token_mask import mask_bytes


class DrawArrays:
    """Rows that the library looks at: those to draw from, and those whose logprobs are asked for.

    It owns what the rows point to. Raises ValueError for tokens outside the vocabulary.
    """

    def __init__(self, best: Sequence[int], seqs: Sequence[ScheduledSeq], vocab: int) -> None:
        """best: the likeliest token of each row; -1: it is not finite, and nothing is made of it."""
        self._vocab = vocab
        self._kept: list[object] = []
        self._seqs = seqs
        self._tokens = list(best)
        wanted = [row for row, seq in enumerate(seqs) if best[row] >= 0 and _is_looked_at(seq, best[row])]
        self.rows = (DrawRow * len(wanted))()
        for place, row in enumerate(wanted):
            self._fill(self.rows[place], row, seqs[row])

    def read(self) -> tuple[list[int], dict[int, TokenLogprob]]:
        """Tokens of all rows, -1 where there is none, and by row the logprobs that were asked for."""
        logprobs: dict[int, TokenLogprob] = {}
        for drawn in self.rows:
            self._tokens[drawn.row] = drawn.token
            if drawn.token >= 0 and drawn.top >= 0:
                count = min(self._seqs[drawn.row].sampling.logprobs or 0, drawn.top)
                pairs = tuple(zip(drawn.top_ids[:count], drawn.top_logprobs[:count], strict=True))
                logprobs[drawn.row] = TokenLogprob(drawn.token, drawn.logprob, pairs, drawn.rank)
        return self._tokens, logprobs

    def _fill(self, to: DrawRow, row: int, seq: ScheduledSeq) -> None:
        params = seq.sampling
        to.row = row
        to.token = self._tokens[row] if takes_best(seq, self._tokens[row]) else -1
        to.top = -1 if params.logprobs is None else min(params.logprobs, self._vocab)
        if to.token >= 0:
            return
        to.temperature = 0.0 if params.temperature < GREEDY_BELOW else params.temperature
        to.top_k, to.top_p = min(params.top_k, self._vocab), params.top_p
        to.least = math.log(params.min_p) if params.min_p > 0 else -math.inf
        to.uniform = uniform(seq.seed, seq.num_outputs)
        to.repetition = params.repetition_penalty
        to.presence, to.frequency = params.presence_penalty, params.frequency_penalty
        self._fill_tokens(to, seq)

    def _fill_tokens(self, to: DrawRow, seq: ScheduledSeq) -> None:
        banned = [token for token in seq.banned_ids if token < self._vocab]
        to.banned, to.banned_count = self._ids(banned), len(banned)
        if seq.allowed is not None:
            if len(seq.allowed) < mask_bytes(self._vocab):
                raise ValueError(
                    f"{len(seq.allowed)} bytes allow tokens; the vocabulary takes {mask_bytes(self._vocab)}"
                )
            to.allowed = seq.allowed
        biases = seq.sampling.logit_bias
        to.bias_ids, to.bias_count = self._ids([token for token, _ in biases]), len(biases)
        to.biases = self._keep(array("f", [value for _, value in biases]))
        if has_penalty(seq.sampling):
            to.history, to.history_count = self._ids(seq.token_ids), len(seq.token_ids)
            to.prompt_count = seq.prompt_len

    def _ids(self, token_ids: Iterable[int]) -> int | None:
        ids = array("i", token_ids)
        if ids and not 0 <= min(ids) <= max(ids) < self._vocab:
            raise ValueError(f"tokens lie in {min(ids)} .. {max(ids)}; the model has 0 .. {self._vocab - 1}")
        return self._keep(ids)

    def _keep(self, numbers: array[int] | array[float]) -> int | None:
        self._kept.append(numbers)
        return numbers.buffer_info()[0] if numbers else None


def _is_looked_at(seq: ScheduledSeq, best: int) -> bool:
    return seq.sampling.logprobs is not None or not takes_best(seq, best)
