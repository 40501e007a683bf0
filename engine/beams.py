"""Beam search over what has been offered to each beam: which beams go on with which tokens, and when it ends.

The search of transformers' generate(num_beams=W, do_sample=False): in each step, of all beams' candidates the
best (1 + end tokens) * W by summed logprob are looked at; those among the first W of them that end, end as
hypotheses, and the best W that do not end go on. Pure numbers: knows no blocks and no events.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field

from engine.records import Candidates, SamplingParams, TokenLogprob
from engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Growth:
    """One way for a beam to go on: the token, and the summed logprob with it."""

    beam: Sequence
    token: TokenLogprob
    total: float


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A completion the search has found. score: total / length ** length_penalty."""

    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    score: float
    stopped: bool


@dataclass(slots=True)
class BeamSearch:
    """The state of one search; `best` are the hypotheses so far, best first, at most `width`."""

    sampling: SamplingParams
    width: int
    max_tokens: int
    stop_ids: frozenset[int]
    best: list[Hypothesis] = field(default_factory=list)

    @property
    def num_candidates(self) -> int:
        """Tokens that each beam must be offered."""
        return max(candidates_for(self.width, self.stop_ids), self.sampling.logprobs or 0)

    def advance(
        self, beams: Ordered[Sequence], offers: Mapping[int, Candidates]
    ) -> tuple[list[Growth], bool]:
        """What the beams go on with, best first, and whether the search is over.

        beams: all of one length, best first. offers: the candidates of each, by seq_id, best first.
        """
        length = beams[0].num_outputs + 1
        looked_at = self._ranked(beams, offers)
        last = length == self.max_tokens
        ended = [growth for growth in looked_at[: self.width] if last or self._ends(growth)]
        going_on = [] if last else [growth for growth in looked_at if not self._ends(growth)][: self.width]
        found = [*self.best, *(self._hypothesis(growth, length) for growth in ended)]
        self.best = sorted(found, key=lambda one: -one.score)[: self.width]
        return going_on, not going_on or self._is_over(going_on[0].total, length)

    def _ranked(self, beams: Ordered[Sequence], offers: Mapping[int, Candidates]) -> list[Growth]:
        top = self.sampling.logprobs or 0
        growths = [
            Growth(beam, TokenLogprob(token_id, logprob, offers[beam.seq_id][:top]), beam.total + logprob)
            for beam in beams
            for token_id, logprob in offers[beam.seq_id]
        ]
        # The sort keeps equals as they are: those of the better beam, then of the likelier token, first.
        return sorted(growths, key=lambda growth: -growth.total)[: candidates_for(self.width, self.stop_ids)]

    def _ends(self, growth: Growth) -> bool:
        return growth.token.token_id in self.stop_ids

    def _hypothesis(self, growth: Growth, length: int) -> Hypothesis:
        beam = growth.beam
        return Hypothesis(
            token_ids=(*beam.token_ids[beam.prompt_len :], growth.token.token_id),
            logprobs=(*beam.logprobs, growth.token),
            score=growth.total / length**self.sampling.length_penalty,
            stopped=self._ends(growth),
        )

    def _is_over(self, best_total: float, length: int) -> bool:
        """Whether `width` hypotheses are there and, as early_stopping reckons, no beam betters the worst."""
        if len(self.best) < self.width:
            return False
        sampling = self.sampling
        if sampling.early_stopping is True:
            return True
        if sampling.early_stopping == "never" and sampling.length_penalty > 0:
            length = self.max_tokens
        best_score: float = best_total / length**sampling.length_penalty
        return best_score <= self.best[-1].score


def candidates_for(width: int, stop_ids: frozenset[int]) -> int:
    """Candidates that are looked at in a step: `width` that do not end are among them whatever ends."""
    return max(2, 1 + len(stop_ids)) * width
